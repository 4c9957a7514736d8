"""The version of both packages, which are one wheel; in a module of its own so that reading it imports nothing."""

VERSION = "0.2.0"
