"""FASTA files. Oracles: the text that a file was written from; the number of the wrong line."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore.errors import InputError
from elmore.text.fasta import MAX_ID, Protein, read_fasta, select_id


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p.fasta"


def test_proteins_are_read(path: Path) -> None:
    path.write_bytes(
        b"\xef\xbb\xbf\r\n>sp|P1|A_HUMAN Alpha\r\nMKv l\r\n\r\n\tkk\r\n"
        b">b\nM\n\n>  c  last > one\nMSE"
    )
    proteins = [Protein("sp|P1|A_HUMAN", "MKVLKK", 2), Protein("b", "M", 6), Protein("c", "MSE", 9)]
    assert list(read_fasta(path)) == proteins
    compressed = path.with_suffix(".fasta.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(read_fasta(compressed)) == proteins


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no proteins"),
        ("\n \n", "has no proteins"),
        ("MKVL\n", "line 1: expected a header that starts with '>', got 'MKVL'"),
        ("\n\n{json: 1}\n>a\nMK", "line 3: expected a header"),
        (" >a\nMK", "line 1: expected a header"),
        (">a\n>b\nMK\n", "line 1: the protein 'a' has no residues"),
        (">a\nMK\n\n>b\n\n", "line 4: the protein 'b' has no residues"),
        (">a\rMK\r>b\rMK\r", "line 1: the protein 'a' has no residues"),
        (">a\nMK\n>b\nMK\n>a\nMS\n", "line 5: the id 'a' repeats that of line 1"),
        (">a x\nMK\n>a y\nMK\n", "line 3: the id 'a' repeats that of line 1"),
        (">\nMK\n", "line 1: no id in the header ''"),
        (">a\nMK\n>  \nMK\n", "line 3: no id in the header ''"),
        (">a\nMK\nVL*\n", r"line 3: '\*' is not a residue; expected the letters A to Z"),
        (">a\nMK-L\n", "line 2: '-' is not a residue"),
        (">a\nMK.L\n", "line 2: '.' is not a residue"),
        (">a\nMK1\n", "line 2: '1' is not a residue"),
        (">a\nMK>b\n", "line 2: '>' is not a residue"),
        (">a\n;comment\nMK\n", "line 2: ';' is not a residue"),
        (">a\nMK\u00df\n", "line 2: '\u00df' is not a residue"),
        (">a\nMK\0\n", "line 2: NUL character"),
        (">" + "a" * (MAX_ID + 1) + "\nMK\n", "line 1: an id of 1,001 characters"),
    ],
)
def test_errors_name_the_line(path: Path, text: str, message: str) -> None:
    path.write_bytes(text.encode())
    with pytest.raises(InputError, match=message) as error:
        list(read_fasta(path))
    assert str(error.value).startswith(f"{path}")


def test_damaged_and_binary_files_are_rejected(path: Path) -> None:
    path.write_bytes(b">a\nMK\xff\n")
    with pytest.raises(InputError, match="line 2: byte 0xff at position 2 is not UTF-8"):
        list(read_fasta(path))
    compressed = path.with_suffix(".gz")
    compressed.write_bytes(gzip.compress(b">a\nMK\n" * 1000)[:-20])
    with pytest.raises(InputError, match=r"damaged \.gz file"):
        list(read_fasta(compressed))
    with pytest.raises(FileNotFoundError):
        list(read_fasta(path.with_name("missing.fasta")))


def test_invalid_residues_become_unknown_with_the_option(path: Path) -> None:
    path.write_bytes(b">a \xff\nM-K*\n\xffu\n")
    assert list(read_fasta(path, replace_invalid=True)) == [Protein("a", "MXKXXU", 1)]


@pytest.mark.parametrize(
    ("header", "field", "char", "expected"),
    [
        ("sp|P1|A_HUMAN Alpha", None, "|", "sp|P1|A_HUMAN"),
        ("sp|P1|A_HUMAN Alpha", 1, "|", "P1"),
        ("sp|P1|A_HUMAN Alpha", 2, "|", "A_HUMAN Alpha"),
        ("sp|P1|A_HUMAN Alpha", 1, " ", "Alpha"),
        ("sp|P1|A_HUMAN Alpha ", -1, "|", "sp|P1|A_HUMAN Alpha"),
        ("1ABC:A::chain", 1, "::", "chain"),
        ("P1", 0, "|", "P1"),
    ],
)
def test_the_field_of_the_id_is_selected(
    header: str, field: int | None, char: str, expected: str
) -> None:
    assert select_id(header, field, char) == expected


@pytest.mark.parametrize(("header", "field"), [("a|b", 2), ("a||c", 1), ("", 0), (" ", None)])
def test_missing_fields_are_rejected(header: str, field: int | None) -> None:
    with pytest.raises(InputError, match=r"no (field|id)"):
        select_id(header, field, "|")


RESIDUES = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=1, max_size=200)
IDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20)


@settings(deadline=None)
@given(
    proteins=st.dictionaries(IDS, RESIDUES, min_size=1, max_size=8),
    width=st.integers(1, 80),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_any_proteins_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, proteins: dict[str, str], width: int, end: str
) -> None:
    lines = []
    for name, sequence in proteins.items():
        lines += [f">{name} description"]
        lines += [sequence[i : i + width] for i in range(0, len(sequence), width)]
    path = tmp_path_factory.getbasetemp() / "any.fasta"
    path.write_bytes(end.join(lines).encode())
    assert {name: sequence for name, sequence, _ in read_fasta(path)} == proteins
