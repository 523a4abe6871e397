"""A checkpoint in other programs' formats: ONNX, a torch.export program, Hugging Face's five files."""
