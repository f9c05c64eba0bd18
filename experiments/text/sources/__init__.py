"""The sources of the training text: the git directory of a public repository to paragraphs."""
