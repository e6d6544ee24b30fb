"""The real world: worker processes that are really killed, and remotes behind HTTP, over the files of one folder."""
