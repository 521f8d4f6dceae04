//! Pickles that are wrong: calls, instructions, values.

use super::{Files, Words, joined, text};

const REFUSED: &str = "which is not imported";

pub(super) fn calls(files: &mut Files) {
    let command = text("touch /tmp/pickled");
    for name in [
        "os.system",
        "posix.system",
        "nt.system",
        "builtins.eval",
        "builtins.exec",
        "builtins.getattr",
        "__builtin__.apply",
        "subprocess.Popen",
        "importlib.import_module",
        "pickle.loads",
        "numpy.core.multiarray._reconstruct",
        "torch.load",
        "torch.hub.load",
        "torch._utils._rebuild_sparse_tensor",
        "torch.nn.modules.linear.Linear",
        "torch.jit.load",
        "collections.defaultdict",
        "torch.storage._load_from_bytes",
        "torch.FloatStorage.from_file",
    ] {
        let (module, function) = name.rsplit_once('.').expect("a module");
        let global = format!("c{module}\n{function}\n");
        let found = Box::leak(name.to_owned().into_boxed_str());
        let words: Words = Box::leak(vec![&*found, REFUSED].into_boxed_slice());
        files.pickle(
            &format!("{name} by REDUCE"),
            joined(&[global.as_bytes(), &command, b"\x85R."]),
            words,
        );
    }
    let os = [text("os"), text("system")].concat();
    files.pickle(
        "a name from the stack",
        joined(&[&os, b"\x93", &command, b"\x85R."]),
        &["os.system", REFUSED],
    );
    files.pickle("a name of numbers", b"K\x01K\x02\x93.", &["found an int and an int"]);
    files.pickle("INST", b"(ios\nsystem\n.", &["found INST, which is not executed"]);
    files.pickle("OBJ", b"(cos\nsystem\no.", &["os.system"]);
    files.pickle("OBJ of a class", b"(ccollections\nOrderedDict\no.", &["found OBJ"]);
    files.pickle("NEWOBJ", b"ccollections\nOrderedDict\n)\x81.", &["found NEWOBJ"]);
    files.pickle("NEWOBJ_EX", b"ccollections\nOrderedDict\n)}\x92.", &["found NEWOBJ_EX"]);
    files.pickle("EXT1", b"\x82\x01)R.", &["found EXT1"]);
    files.pickle("EXT2", b"\x83\x01\x00)R.", &["found EXT2"]);
    files.pickle("EXT4", b"\x84\x01\x00\x00\x00)R.", &["found EXT4"]);
    files.pickle("PERSID", b"Pmodule\n.", &["found PERSID"]);
    files.pickle("NEXT_BUFFER", b"\x97.", &["found NEXT_BUFFER"]);
    files.pickle(
        "a call of a class",
        joined(&[b"ctorch\nFloatStorage\n", &command, b"\x85R."]),
        &["found a call"],
    );
    files.pickle(
        "a call of a number",
        joined(&[b"K\x01", &command, b"\x85R."]),
        &["found an int and a tuple"],
    );
    files.pickle(
        "a call with a list",
        b"ccollections\nOrderedDict\n]R.",
        &["a tuple of arguments"],
    );
    files.pickle(
        "a dictionary of a number",
        b"ccollections\nOrderedDict\nK\x01\x85R.",
        &["OrderedDict"],
    );
    files.pickle(
        "a dictionary of triples",
        b"ccollections\nOrderedDict\n](](NNNee\x85R.",
        &["pairs"],
    );
    files.pickle(
        "a call with nine arguments",
        b"ctorch._utils\n_rebuild_tensor_v2\n(NNNNNNNNNtR.",
        &["at most 8"],
    );
    files.pickle(
        "a tensor of nothing",
        b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
        &["a storage, an offset"],
    );
    files.pickle(
        "a parameter of nothing",
        b"ctorch._utils\n_rebuild_parameter\nN\x88}\x87R.",
        &["arguments of a parameter"],
    );
    files.pickle("a size of a number", b"ctorch\nSize\nK\x01\x85R.", &["torch.Size"]);
    files.pickle("BUILD of a list", b"]}b.", &["attributes of a dict, found a dict for a list"]);
    files.pickle("BUILD with a number", b"}K\x01b.", &["found an int for a dict"]);
    files.pickle(
        "BUILD of an attribute",
        joined(&[b"}}", &text("__class__"), b"Nsb."]),
        &["__class__"],
    );
    files.pickle("a name without end", [b"c", &[b'a'; 400][..]].concat(), &["more than 256 bytes"]);
    files.pickle("a name of control characters", b"co\x1b[31m\ns\xe2\x80\xae\n.", &[REFUSED]);
    files.pickle("a name that is not UTF-8", b"c\xff\xfe\n\x80\n.", &[REFUSED]);
}

pub(super) fn machine(files: &mut Files) {
    for (name, body, words) in [
        ("no value", &b"."[..], &["expected a value on the stack"][..]),
        ("two values", b"NN.", &["found 1 more values"]),
        ("an open mark", b"(N.", &["found 1 more values"]),
        ("a mark below", b"N(.", &["expected a value on the stack"]),
        ("None", b"N.", &["expected a dict of tensors, found None"]),
        ("a number", b"K\x01.", &["found an int"]),
        ("a list", b"].", &["found a list"]),
        ("an empty dictionary", b"}.", &[]),
        ("a tuple without a mark", b"t.", &["expected a mark"]),
        ("entries without a mark", b"}u.", &["expected a mark"]),
        ("a key without a value", b"}(Nu.", &["a key without"]),
        ("entries of a list", b"](NNu.", &["expected a dict, found a list"]),
        ("elements of a dictionary", b"}Na.", &["expected a list, found a dict"]),
        ("elements of a tuple", b")(Ne.", &["expected a list, found a tuple"]),
        ("elements of nothing", b"(Ne.", &["expected a value on the stack"]),
        ("a tuple of too few", b"N\x87.", &["expected a value on the stack"]),
        ("an unset number of the memo", b"h\x07.", &["which has 0 values, found 7"]),
        ("a huge number of the memo", b"Nr\xff\xff\xff\xff.", &["found 4294967295"]),
        ("a memo of nothing", b"q\x00.", &["expected a value on the stack"]),
        ("a number that is skipped", b"Nq\x01h\x00.", &["found 0"]),
        ("DUP", b"}2.", &["found DUP"]),
        ("POP", b"}N0.", &["found POP"]),
        ("POP_MARK", b"}(1.", &["found POP_MARK"]),
        ("a byte that is none", b"\xff.", &["found byte 0xff"]),
        ("zeros", &[0; 64], &["found byte 0x00"]),
        ("protocol 0", b"\x80\x00N.", &["found 0"]),
        ("protocol 6", b"\x80\x06N.", &["found 6"]),
        ("numbers in words", b"I01\n.", &["found INT"]),
        ("strings in words", b"S'a'\n.", &["found STRING"]),
        ("bytes", b"C\x01a.", &["found SHORT_BINBYTES"]),
        ("a frozen set", b"(\x91.", &["found FROZENSET"]),
        ("a dictionary of marks", b"(NNd.", &["found DICT"]),
        ("a long number of four bytes", b"\x8b\xff\xff\xff\xff.", &["found LONG4"]),
        ("a string of 4 GB", b"X\xff\xff\xff\xffa", &["4294967295 more bytes"]),
        (
            "a string of all bytes",
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffa",
            &["18446744073709551615"],
        ),
        ("a string beyond the end", b"T\x00\x00\x00\x01a.", &["16777216 more bytes"]),
        ("a persistent id of a number", b"K\x01Q.", &["persistent id", "found an int"]),
        ("a persistent id of nothing", b")Q.", &["persistent id", "another tuple"]),
        ("a list that contains itself", b"]q\x00h\x00a.", &["found a list"]),
        ("a tuple of itself", b"]q\x00h\x00\x85q\x01a.", &["found a list"]),
        (
            "an instruction count",
            &[b"N".as_slice(), &b"q\x00".repeat(400_000)].concat(),
            &["instructions"],
        ),
        ("a stack", &b"N".repeat(100_000), &["values on the stack"]),
        ("marks", &b"(".repeat(100_000), &["open marks"]),
        (
            "nested lists",
            &[b"]".repeat(16_000), b"a".repeat(15_999), b".".to_vec()].concat(),
            &["found a list"],
        ),
        ("nested tuples", &[b")".to_vec(), b"\x85".repeat(1_000_000)].concat(), &["bytes"]),
        ("nested dictionaries", &b"}(N".repeat(100_000), &["open marks"]),
        ("dictionaries", &[&b"]("[..], &b"}".repeat(16_000), b"e"].concat().repeat(60), &["bytes"]),
        ("large tuples", &[&b"("[..], &b"N".repeat(16_000), b"t"].concat().repeat(60), &["bytes"]),
        ("a memo of all", &b"N\x94".repeat(16_000), &[]),
    ] {
        files.pickle(name, body, words);
    }
    let own = joined(&[b"}q\x00", &text("a"), b"h\x00s."]);
    files.pickle("a dictionary of itself", own, &["expected a tensor for \"a\", found a dict"]);
    let growing: Vec<u8> = (0..60).flat_map(|_| b"h\x00h\x00\x86q\x00".to_vec()).collect();
    files.pickle("tuples of tuples", [&b"Nq\x00"[..], &growing, b"\x85."].concat(), &[]);
    let id = |of: &str, rest: &[u8]| joined(&[b"(", &text(of), rest, b"tQ."]);
    files.pickle("another persistent id", id("module", b"N"), &["found one of \"module\""]);
    files.pickle("a storage without a class", id("storage", b"NNNN"), &["found other elements"]);
    let storage = |rest: &[u8]| {
        id("storage", &joined(&[b"ctorch\nFloatStorage\n", &text("0"), &text("cpu"), rest]))
    };
    files.pickle("a storage of minus one", storage(b"J\xff\xff\xff\xff"), &["found -1"]);
    files.pickle("a storage of words", storage(&text("many")), &["found other elements"]);
    files.pickle("a view of a number", storage(b"K\x04K\x01"), &["found an int"]);
    files.pickle(
        "a view beyond its storage",
        storage(&joined(&[b"K\x04", &text("1"), b"K\x02K\x03\x87"])),
        &["inside the 4 elements"],
    );
}
