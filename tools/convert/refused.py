class Refused(Exception):
    """A checkpoint that cannot be converted: the reason and the remedy."""
