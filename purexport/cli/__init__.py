"""The command line: main.py knows the verbs, each verb is a file with `add_parser` and `run`."""
