"""The version of attncc, which the texts that it writes name."""

__version__ = "0.2.0"
