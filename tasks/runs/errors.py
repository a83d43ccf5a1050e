"""The error that the command line shows as one line."""


class UserError(ValueError):
    """Something the user can put right. The message is one line that says what is wrong, and where."""
