"""Compare the files of `torch.save` with those that the tests write, and with safetensors.

Usage: python torch_files.py DIR            (DIR gets a folder for each golden checkpoint and format)
       SIMDFORMER_TORCH_FILES=DIR cargo test -p simdformer --features torch --test all -- --ignored files_of_pytorch

For every golden checkpoint it writes `DIR/NAME_zip/pytorch_model.bin` and `DIR/NAME_legacy/pytorch_model.bin` by
`torch.save`: an OrderedDict with `_metadata`; tensors of every second name are parameters, every third matrix is transposed
in memory, and vectors of f32 are views of one storage. The test with the variable then requires the bits of the safetensors.
`DIR/digests.txt` has the SHA-256 of the numbers of each checkpoint as torch reads them back from both files with
`weights_only=True`, which must be equal to those of the safetensors. `torch_files/` beside this script gets the two files of
`camembert`.
"""

import hashlib
import os
import shutil
import sys
from collections import OrderedDict

import torch
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))


def rearranged(tensors):
    vectors = [name for name, t in tensors.items() if t.dim() == 1 and t.dtype == torch.float32]
    storage = torch.cat([tensors[name] for name in vectors]) if vectors else torch.zeros(0)
    state_dict, begin, matrices = OrderedDict(), 0, 0
    state_dict._metadata = OrderedDict({"": {"version": 1}})
    for index, (name, tensor) in enumerate(tensors.items()):
        if name in vectors:
            tensor = storage[begin : begin + tensor.numel()]
            begin += tensor.numel()
        elif tensor.dim() == 2:
            matrices += 1
            if matrices % 3 == 0:
                tensor = tensor.t().contiguous().t()
        if index % 2 and tensor.is_floating_point():
            tensor = torch.nn.Parameter(tensor)
        state_dict[name] = tensor
    return state_dict


def digest(tensors):
    sha = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous().view(-1)
        sha.update(name.encode() + bytes(tensor.view(torch.uint8).numpy()))
    return sha.hexdigest()


def main():
    out = sys.argv[1]
    goldens = [os.path.join("families", name) for name in sorted(os.listdir(os.path.join(HERE, "families")))]
    goldens += ["marian_odd", "marian_untied", "nn_transformer_post", "nn_transformer_pre"]
    lines = [f"torch {torch.__version__}"]
    for golden in goldens:
        folder = os.path.join(HERE, golden)
        weights = os.path.join(folder, "model.safetensors")
        if not os.path.exists(weights):
            continue
        tensors = load_file(weights)
        state_dict, expected = rearranged(tensors), digest(tensors)
        name = os.path.basename(golden)
        for kind, zipped in (("zip", True), ("legacy", False)):
            target = os.path.join(out, f"{name}_{kind}")
            os.makedirs(target, exist_ok=True)
            for file in ("config.json", "generation_config.json"):
                if os.path.exists(os.path.join(folder, file)):
                    shutil.copy(os.path.join(folder, file), target)
            file = os.path.join(target, "pytorch_model.bin")
            torch.save(state_dict, file, _use_new_zipfile_serialization=zipped)
            found = digest(torch.load(file, weights_only=True))
            assert found == expected, (name, kind)
            if name == "camembert":
                os.makedirs(os.path.join(HERE, "torch_files"), exist_ok=True)
                shutil.copy(file, os.path.join(HERE, "torch_files", f"{name}_{kind}.bin"))
        lines.append(f"{expected} {name}")
    with open(os.path.join(out, "digests.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")
    print(f"{len(lines) - 1} checkpoints in two formats in {out}")


if __name__ == "__main__":
    main()
