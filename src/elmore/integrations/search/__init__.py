"""faiss: nearest neighbors of a word in context among millions of words.

import elmore
from elmore.integrations.search import WordIndex, build_index

build_index("corpus.txt", "idx")
index = WordIndex("idx")
[neighbors] = index.nearest_neighbors(elmore.load(), ["They put on a [play] last night ."])
"""

from elmore.integrations.search.build import build_index as build_index
from elmore.integrations.search.index import WordIndex as WordIndex
