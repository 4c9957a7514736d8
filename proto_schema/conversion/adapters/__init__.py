"""The rows, one file a theme; `conversion.rows` lists the files."""
