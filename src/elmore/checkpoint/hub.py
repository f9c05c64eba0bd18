"""Models on the Hugging Face Hub, by id: `user/model` or `user/model@revision`."""

import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from elmore.checkpoint.directory import CONFIG, read_config
from elmore.errors import InputError

_FILES = ("*.json", "*.safetensors", "*.hdf5", "*.h5", "*.txt", "*.md")
_NAME = r"[A-Za-z0-9][\w.-]*"
_ID = re.compile(rf"({_NAME}/{_NAME})(?:@(\S+))?")


class HubId(NamedTuple):
    """A repository on the Hub, and optionally a branch, a tag or a commit of it."""

    repo: str
    revision: str | None


def parse_id(model: Path | str) -> HubId | None:
    """Return the parts of a model id; None if the text cannot be one."""
    match = _ID.fullmatch(model.as_posix() if isinstance(model, Path) else model)
    return HubId(*match.groups()) if match else None


def download(model: HubId, **options: Any) -> Path:
    """Return the folder of a model in the Hugging Face cache, downloading it if necessary.

    Without a connection, or with the environment variable `HF_HUB_OFFLINE=1`, the cached files are
    used.

    Args:
        model: Repository and revision; by default, the latest commit of the main branch.
        options: For `huggingface_hub.snapshot_download`: token, cache_dir, local_files_only, ...

    Raises:
        InputError: If there is no such model, or it cannot be downloaded.
    """
    repo, revision = model
    if find_spec("huggingface_hub") is None:
        raise InputError(
            f"{repo}: no such model on this machine. To load models from the Hugging Face Hub, "
            'run: pip install "elmore[hf]"'
        )
    from huggingface_hub import errors, snapshot_download

    try:
        # The settings first: a model of another kind is refused before its weights are downloaded.
        get = partial(snapshot_download, repo, **options)
        folder = Path(get(revision=revision, allow_patterns="*.json"))
        if (folder / CONFIG).exists():
            read_config(folder)
        return Path(get(revision=folder.name, allow_patterns=[*_FILES]))
    except InputError:
        raise
    except errors.RevisionNotFoundError as error:
        raise InputError(f"{repo} has no revision {revision} on the Hugging Face Hub") from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"{repo}: no such model, neither on this machine nor on the Hugging Face Hub. If it is "
            "private, log in with `hf auth login`."
        ) from error
    except Exception as error:  # the HTTP library has its own errors, and depends on the version
        raise InputError(
            f"{repo}: no such model on this machine, and it can't be downloaded from the Hugging "
            f"Face Hub: {' '.join(str(error).split())}"
        ) from error
