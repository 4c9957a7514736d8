"""The command line: `main` knows the verbs, which are files in `verbs`."""
