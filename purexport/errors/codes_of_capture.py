"""Causes that lie in the model, its arguments, and what a capture can know of them."""

from __future__ import annotations

from purexport.errors.code import Code, Family
from purexport.errors.requirements import command_for

FAMILIES: tuple[Family, ...] = (
    (
        "The model and its arguments",
        (
            Code(
                "model-does-not-run",
                "The model itself raised an error on the example arguments.",
                "Run `model(*args)`, and correct the error.",
                "the model does not run on these args: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
            ),
            Code(
                "args-do-not-fit",
                "The arguments do not match the signature of the model's `forward`.",
                "Give `args` and `kwargs` as in a call of the model.",
                "the model takes 1 args, 2 were given",
            ),
            Code(
                "no-call-observed",
                "The block of `observe` ended, and the module was not called in it.",
                "Run the pipeline inside the block. If it calls a method or a part of the module, observe that.",
                "no call of the Decoder was seen; run the model inside the block: with purexport.observe(module) as "
                "seen: pipe(...)",
            ),
            Code(
                "argument-layout",
                "An argument is a sparse or nested tensor. Inputs of a file are dense.",
                "Pass the dense tensor, and convert it inside of the model.",
                "args hold a torch.sparse_coo tensor, and inputs of a file are dense; pass x.to_dense() and convert it "
                "inside of the model",
            ),
            Code(
                "argument-not-a-tensor",
                "The arguments contain an object whose tensors cannot be found.",
                "Pass them in a dict, list, tuple, dataclass or mapping, or register the class as a pytree node.",
                "args holds 'a', which is not a tensor; pass example tensors",
            ),
            Code(
                "args-share-memory",
                "The model writes to an input, and another argument shares its memory. Inputs of a file never "
                "share memory.",
                "Pass tensors that share no memory (`.clone()`).",
                "the model writes to its input 'x' at net (model.py:7), and two of the args share memory; pass tensors "
                "of their own (.clone())",
            ),
            Code(
                "not-a-decoder",
                "The argument is neither a decoder with a cache of keys and values, nor a folder that holds one.",
                "Give a model of transformers with a language-model head, or the folder that `save_pretrained` wrote. "
                "For other models of transformers use `purexport hf`, and for any other model `export`.",
                "out has no config.json; a folder as model.save_pretrained writes it is needed",
            ),
            Code(
                "not-a-pipeline",
                "The argument is neither a pipeline of diffusers nor a folder that holds one.",
                "Give a pipeline, or the folder that `save_pretrained` wrote.",
                "out has no model_index.json; a folder as pipe.save_pretrained writes it is needed",
            ),
            Code(
                "pipeline-does-not-run",
                "The pipeline raised an error on the small texts and sizes that purexport chose.",
                "Give `inputs`, a list with the keyword arguments of two calls.",
                "Img2ImgPipeline does not run on prompt: ValueError: image is missing; give inputs=[{...}, {...}], the "
                "keyword arguments of two calls at small sizes",
            ),
            Code(
                "no-task",
                "The task of the model is not clear, or transformers has no class for the requested task.",
                "Give the task, `--task` (`task=`), as in `feature-extraction`; docs/transformers-models.md lists all "
                "tasks.",
                "transformers has no class for image-classification with a BertConfig; it has some for "
                "text-classification, feature-extraction",
            ),
            Code(
                "generates-text",
                "The model in the folder generates text, so it needs a cache of keys and values.",
                "Use `purexport llm` (`purexport.language_model`).",
                "LlamaForCausalLM generates text, and `purexport llm` (purexport.language_model) writes such models; "
                "with --task feature-extraction the model without its head is written",
            ),
            Code(
                "generates-no-text",
                "The folder has a model that generates no text, such as an encoder or a classifier.",
                "Call it: `purexport.load_pretrained(folder)(**inputs)`.",
                "bert has a model that generates no text (BertModel); call it",
            ),
            Code(
                "not-a-runnable-folder",
                "The folder was not written by `purexport llm` or `purexport hf`, or its files are damaged.",
                "Give the folder that one of these wrote, with all of its files.",
                "out has none of vision.onnx, encoder.onnx, prefill.onnx, model.onnx; give a folder that "
                "`purexport llm` or `purexport hf` wrote",
            ),
            Code(
                "runtime-lacks-operator",
                "The runtime does not load a file of the folder: it has no kernel for a node, or the opset is too new.",
                'Install a newer release of the runtime, or write the folder for `target="onnx"` or a lower opset.',
                "onnxruntime does not run out/model.onnx: onnxruntime 1.17.0 loads opset 20 at most, and the file has "
                "23; a newer release may, and a lower opset_version (--opset) or target='onnx' writes other operators",
            ),
            Code(
                "odd-config",
                "The config.json of a folder has impossible values, or does not match the weights. It is checked "
                "before the model is made.",
                "Take the config.json that belongs to the weights.",
                "lm/config.json: num_attention_heads: 0 is not a number of heads, from 1 to 16384; take the config "
                "that belongs to the weights",
            ),
            Code(
                "runs-code",
                "The model of a folder is Python code in the folder. Such code does not run unless you ask for it.",
                "Use `--trust-remote-code` (`trust_remote_code=True`) only if you trust its author: the code can do "
                "everything that you can do on this machine.",
                "lm/config.json: transformers has no model_type 'x', and the Python code that auto_map names is not "
                "run; if you trust its author, --trust-remote-code (trust_remote_code=True) runs it",
            ),
            Code(
                "file-outside-folder",
                "A file of the folder is a link to a file outside of it. Such a file is not copied to the result. "
                "Links into the blobs of a hub's cache are followed.",
                "Replace the link by a copy of the file if the result may contain it.",
                "lm/tokenizer.json leads to /home/me/secret.txt, which is neither beneath the folder nor a blob of the "
                "same repository in a hub's cache; put a copy of the file there if the result may have it",
            ),
            Code(
                "file-too-large",
                "The config or the files of a tokenizer are larger than any known one.",
                "Take the large file out of the folder.",
                "lm/vocab.txt has 1000000000 bytes, and at most 268435456 are read from such a file; is it the "
                "right file?",
            ),
            Code(
                "static-cache",
                "The model cannot have a static cache: it gives other results with empty slots, does not run with "
                "them, or has an attention for which the target has no buffers of fixed length.",
                "Use `cache='dynamic'`, or `target='onnx'` if the message says so.",
                "GPTNeoForCausalLM computes other logits with a static cache than with a dynamic one; use "
                "cache='dynamic'",
            ),
            Code(
                "no-adapter",
                "The model has no LoRA layers, or does not use one of them.",
                "Load the adapter with peft and pass that model, or leave `lora` out.",
                "LlamaForCausalLM has no LoRA layers, which lora='merge' needs",
            ),
            Code(
                "unknown-adapter",
                "An adapter is of another kind than LoRA, is not active, or is merged already.",
                "Leave `lora` out: the file then has the adapter beside the weights. Learnt prompts cannot be "
                "exported.",
                "the adapter of layers.0.q_proj has use_dora, so lora='merge' cannot be used; leave lora out to "
                "keep the adapter beside the weights",
            ),
            Code(
                "needs-diffusers",
                "A folder with a pipeline is read by diffusers, which is not installed.",
                f"Install it: `{command_for('diffusers', 'transformers')}`.",
                f"pipelines are read by diffusers, which is not installed: {command_for('diffusers', 'transformers')}",
            ),
            Code(
                "needs-transformers",
                "Language models need transformers, which is not installed.",
                f"Install it: `{command_for('transformers')}`.",
                f"language models are made by transformers, which is not installed: {command_for('transformers')}",
            ),
            Code(
                "output-not-a-tensor",
                "The model returns a value that is neither a tensor nor a number. Outputs of ONNX are tensors.",
                "Return tensors, or register the class as a pytree node.",
                "output 'y' is a list, and ONNX outputs are tensors",
            ),
            Code(
                "script-without-forward",
                "The script has no `forward` to export.",
                "Script a module that calls it.",
                "the script has no method forward of its own; script a module that calls it",
            ),
            Code(
                "neither-route",
                "The trace failed, and so did torch.export. `error.causes` has all errors.",
                "Read the errors: correcting one of them is enough.",
                "no route took the model.\nby trace: a trace does not record it\nby torch.export: it does not",
            ),
            Code(
                "packed-weights",
                "A quantized layer stores its weights in an object of unknown form.",
                "Quantize the layer in another way.",
                "net.lstm holds recurrent weights of kind 1; quantize them dynamically",
            ),
            Code(
                "parameters-written",
                "The model writes to its parameters when it runs. In a file they are constants.",
                "Write to buffers.",
                "the model writes to its parameters weight when it runs; write to buffers",
            ),
            Code(
                "state-written",
                "The model writes to its buffers or inputs, and `mutated_state='error'` asks to refuse that.",
                "Leave the option out, or take `mutated_state='io'`.",
                "the model writes to its buffer 'count'; the file does not\n(mutated_state='error')",
            ),
            Code(
                "buffer-assigned",
                "The model assigns another tensor to a buffer, and torch.export does not record which one.",
                "Export with `capture='trace'`, or write into the buffer (`.copy_()`).",
                "the model assigns a tensor to its buffer 'count', and torch.export does not record which one; export "
                "with capture='trace', or write into the buffer (.copy_())",
            ),
            Code(
                "different-devices",
                "A model without values holds a tensor on the meta device that is not a parameter, buffer or "
                "attribute.",
                "Register that tensor as a buffer.",
                "torch.export does not take the model: found two different devices meta, cpu\n(for the capture, ...)",
            ),
            Code(
                "tensor-without-values",
                "A tensor is on the meta device or fake, and no values were given for it.",
                "Pass its values by `weights=`. If the tensor has no name, register it as a buffer first.",
                "the model holds a tensor without values that is not a parameter, buffer or attribute (the capture "
                "calls it 'c0'); register it as a buffer, and give it with weights=",
            ),
            Code(
                "wrong-option",
                "An option has an invalid value.",
                "Use a value that the message names. (Most such mistakes are a `ValueError` without a code.)",
                "training='yes' is neither a bool nor a TrainingMode",
            ),
            Code(
                "not-exported",
                "An `ExportError` without a code, for example from your own rule.",
                "Read the message.",
                "",
            ),
        ),
    ),
    (
        "Dynamic axes",
        (
            Code(
                "dynamic-axis-held",
                "A size that follows from a dynamic axis is a fixed number in the captured graph. The file would be "
                "wrong at other sizes.",
                "Compute the size by torch operators from `x.shape`, or declare the axis static.",
                "torch.export makes a size static that follows from a dynamic axis: n == 4; compute it by torch "
                "operators from x.shape, or declare the axis static",
            ),
            Code(
                "no-shape-function",
                "The operator has no shape function, so the sizes after it are unknown.",
                "Declare the axes static; for an operator of your own register a fake implementation "
                "(`torch.library.register_fake`).",
                "my::op at net (model.py:7) has no shape function, so its sizes under dynamic axes are unknown",
            ),
            Code(
                "dynamic-shapes-do-not-fit",
                "The structure of `dynamic_shapes` is not the structure of the arguments.",
                "Give one entry for each argument, in the same structure.",
                "dynamic_shapes has 1 entries, and the args are x, y",
            ),
            Code(
                "sizes-compared",
                "A script has a branch on whether two sizes are equal, which is known only when the file runs.",
                "Declare one of the axes static, or leave the comparison out.",
                "the script compares sizes that may or may not be equal when the model runs",
            ),
        ),
    ),
    (
        "Data that decides",
        (
            Code(
                "data-dependent",
                "Python code or a script has a branch on the content of a tensor that ONNX cannot express.",
                "Use `torch.where` or `torch.cond`, state the condition by `torch._check`, or script the function.",
                "torch.export does not take the model: its Python code decides on the content of a tensor at net "
                "(model.py:7); use torch.where or torch.cond there, say what holds with torch._check, or script the "
                "function",
            ),
            Code(
                "data-dependent-size",
                "A size depends on data, and torch needs it for the shape of the result.",
                "Write the call so that its shape does not depend on that size, or script the function.",
                "aten::unbind.int at net (model.py:7) needs a size that depends on data, as a Python loop over such a "
                "tensor does; the file would hold that of the example. Script the function, or write it so that no "
                "size depends on data (Could not guard on data-dependent expression Eq(u0, 0))",
            ),
            Code(
                "loop-writes-unseen",
                "A loop over rows that the data selects is recorded for all possible rows, and writes for rows that "
                "are not selected are undone. So every write must be visible.",
                "Write by an in-place operator (`index_add_`, `copy_`, `x[rows] = y`), or script the function.",
                "a loop over the rows that the data chose writes to 'out' in a way that the capture does not see, at "
                "model.py:7; write with an operator such as index_add_",
            ),
            Code(
                "paths-disagree",
                "A variable has different types after the two branches. A value of ONNX has one type.",
                "Give it the same dtype, rank and keys in both branches.",
                "at net (model.py:7) a variable is a list on one path and a dict on the other",
            ),
            Code(
                "loop-changes-type",
                "A variable of a loop has another type, or other keys, in a later step than in the first.",
                "Give it its final type before the loop begins.",
                "a variable of the loop at net (model.py:7) changes its type at every step, which ONNX cannot express",
            ),
            Code(
                "none-on-one-path",
                "A value is None on one path and a tensor on the other, and is used without a test.",
                "Test it by `is not None`, or return a flag with it.",
                "aten::add at net (model.py:7) takes a value that is None on one path at net (model.py:5); test it "
                "with 'is not None'",
            ),
            Code(
                "list-of-unknown-length",
                "The length of a list, or an index into it, depends on data, and ONNX cannot express this use.",
                "Use a tensor, or a list whose length is known.",
                "at net (model.py:7) a list is sliced at a position that depends on data; cut a tensor instead",
            ),
        ),
    ),
    (
        "Writes in place",
        (
            Code(
                "alias-unknown",
                "Two names may be one tensor or list, depending on a branch or loop, and the model writes to one of "
                "them.",
                "Write to a copy (`.clone()`, `list(...)`), or assign a new value.",
                "the script changes a list or dict at net (model.py:7) that may or may not be the one of another name, "
                "because of the branch at net (model.py:5); change a copy (list(...)), or assign a new one",
            ),
            Code(
                "write-to-list-element",
                "The model writes to a tensor that may be an element of a list whose length depends on data.",
                "Put a `.clone()` into the list, or assign a new tensor.",
                "aten::add_ at net (model.py:7) writes in place to a tensor that may be an element of the list at net "
                "(model.py:5), whose length depends on data; put a .clone() into the list, or assign a new tensor",
            ),
            Code(
                "write-to-constant",
                "The model writes to a tensor that is not an input, parameter or buffer; its value before is unknown.",
                "Register it with `register_buffer`, or write to a `.clone()` of it.",
                "aten::add_ at net (model.py:7) writes to a tensor that is not an input, parameter or buffer; its "
                "value from before the call is not known. Register it with register_buffer, or write to a .clone() "
                "of it",
            ),
            Code(
                "write-not-followed",
                "An operator writes to several tensors, or to others than its schema says. The written values are "
                "not known.",
                "Write it as an assignment of a new tensor.",
                "aten::foo_ at net (model.py:7) writes in a way that cannot be followed; write it as an assignment of "
                "a new tensor",
            ),
            Code(
                "fill-diagonal",
                "`fill_diagonal_` is supported only on matrices without `wrap`.",
                "Write to `.diagonal()`.",
                "aten::fill_diagonal_ at net (model.py:7) is supported on matrices without wrap; write to .diagonal()",
            ),
            Code(
                "no-pure-form",
                "An operator writes in place, or to `out=`, and torch has no other form of it.",
                "Write it as an assignment of a new tensor.",
                "aten::foo_ at net (model.py:7) writes in place, and torch has no pure form of it",
            ),
            Code(
                "shape-changed-in-place",
                "A call changes the shape of a tensor that has other names, too.",
                "Use the form that is not in place, or pass an `out=` tensor with the shape of the result.",
                "aten::t_ at net (model.py:7) changes the shape of a tensor in place, inside a branch or loop that "
                "depends on data; use the form that is not in place",
            ),
            Code(
                "view-without-inverse",
                "The model writes through a view, and the effect on the base tensor is not known.",
                "Write into the base tensor, or build a new one.",
                "aten::add_ at net (model.py:7) writes through aten::foo (net (model.py:6)): this view is not "
                "supported; write into the base tensor, or build a new tensor",
            ),
            Code(
                "view-sizes-unknown",
                "The model writes through a view, and the target of the write is known only for known sizes.",
                "Declare the axes static, write into the base tensor, or build a new one.",
                "aten::add_ at net (model.py:7) writes through aten::unfold (net (model.py:6)): its sizes must be "
                "known; write into the base tensor, or build a new tensor",
            ),
            Code(
                "view-overlaps",
                "The model writes through a view that contains an element several times, so the result depends on "
                "the order.",
                "Write into the base tensor, or build a new one.",
                "aten::add_ at net (model.py:7) writes through aten::unfold (net (model.py:6)): it contains an "
                "element several times; write into the base tensor, or build a new tensor",
            ),
        ),
    ),
    (
        "Traces, scripts and programs",
        (
            Code(
                "trace-cannot-record",
                "A trace does not record what the model does there.",
                "Use `capture='export'`.",
                "the model computes with a sparse tensor, which a trace does not record, at model.py:3; use "
                "capture='export'",
            ),
            Code(
                "no-torchscript",
                "This release of torch has no torch.jit, which compiles scripts.",
                "Export the module itself.",
                "torch 3.0.0 has no torch.jit, which scripts need",
            ),
            Code(
                "torch-internal-error",
                "An internal assertion of torch fails.",
                "Export by the other route, or write the operation in another way.",
                "the capture does not take the model, which runs without it: RuntimeError: r INTERNAL ASSERT FAILED "
                "at alias_analysis.cpp",
            ),
            Code(
                "torch-export-refuses",
                "torch.export cannot capture the model.",
                "Read its message, or use `capture='trace'`.",
                "torch.export does not take the model: Unsupported: generator at net (model.py:7)",
            ),
            Code(
                "program-not-read",
                "An ExportedProgram contains something that a file cannot contain, or that torch cannot resolve.",
                "Export the program without it.",
                "the program's input 'n' is not a tensor, and inputs in ONNX are tensors",
            ),
            Code(
                "call-does-not-run",
                "A call of a script raises an error on the shapes and dtypes that reach it.",
                "Correct the call, or leave it out if its branch is never taken.",
                "aten::mm at net (model.py:7) does not run: a and b must have same reduction dim",
            ),
            Code(
                "script-raises",
                "The script raises an error on the example, independent of the data.",
                "Give an example on which the script runs.",
                "the script raises at net (model.py:7) on these args: ValueError: too short",
            ),
            Code(
                "script-operator",
                "This operation is not supported in scripts.",
                "Write it in another way, or export the module itself without `torch.jit.script`.",
                "aten::foo at net (model.py:7) cannot be exported from a script yet",
            ),
            Code(
                "script-object",
                "The script uses an object that is neither a module nor made by the script.",
                "Return its attributes as a tuple, or keep them in modules.",
                "the script returns an instance of a class; return its attributes, as a tuple",
            ),
            Code(
                "script-hides-effect",
                "A script does not show the effect of a context manager or of a quantized call.",
                "Export the module itself by trace.",
                "the script enters __torch__.Mode at net (model.py:7), whose effect a script does not show; "
                "export the module itself by trace",
            ),
            Code(
                "script-too-long",
                "The export interprets a script, and this script takes too many steps.",
                "Look for a loop that does not end, or write it on tensors.",
                "the script takes more than 1000000 steps at export, at net (model.py:7)",
            ),
        ),
    ),
)
