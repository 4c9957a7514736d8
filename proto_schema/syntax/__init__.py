"""Reading the textual syntax of ONNX: `cursor` (blanks, words, strings, errors), `numbers`, `grammar`."""
