"""What tools on graphs share: `names` (scopes, free names, renaming), `subgraphs` (parts of models), `similar`."""
