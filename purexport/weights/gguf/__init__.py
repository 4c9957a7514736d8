"""GGUF, the files of llama.cpp: their header (`reader`), their types (`types`), and the numbers of their blocks."""
