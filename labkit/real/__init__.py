"""The real world: worker processes that are really killed, over the files of one folder."""
