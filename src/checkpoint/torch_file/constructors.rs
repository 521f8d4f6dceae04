//! What the functions of a state dict make of their arguments: dictionaries, storages, and tensors that are views of
//! storages. Every offset and every size is checked here.

use super::values::{Global, Span, StorageType, Tensor, TorchStorage, Value, Values};

/// Maximum number of dimensions of a tensor, as in safetensors files.
const MAX_DIMENSIONS: usize = 32;

/// The result of `function(*arguments)`.
pub(super) fn call(
    values: &mut Values,
    function: Global,
    arguments: Span,
) -> Result<Value, String> {
    let mut given = [Value::None; 8];
    let items = values.items(arguments);
    let count = items.len();
    let wrong = |name: &str, expected: &str| {
        Err(format!("expected {expected} as arguments of {name}, found {count} of other types"))
    };
    let Some(copied) = given.get_mut(..count) else {
        return Err(format!("expected at most 8 arguments of a function, found {count}"));
    };
    copied.copy_from_slice(items);
    match (function, &given[..count]) {
        (Global::OrderedDict, []) => values.new_dict(),
        (Global::OrderedDict, &[Value::List(pairs)]) => ordered_dict(values, pairs),
        (Global::OrderedDict, _) => wrong("OrderedDict", "none or a list of pairs"),
        (Global::Size, &[Value::Tuple(sizes)]) => Ok(Value::Tuple(sizes)),
        (Global::Size, _) => wrong("torch.Size", "a tuple"),
        (
            Global::RebuildTensor,
            &[Value::Storage(storage), offset, Value::Tuple(shape), Value::Tuple(strides)],
        )
        | (
            Global::RebuildTensorV2,
            &[
                Value::Storage(storage),
                offset,
                Value::Tuple(shape),
                Value::Tuple(strides),
                Value::Bool(_),
                Value::Dict(_),
                ..,
            ],
        ) => tensor(values, storage, offset, [shape, strides], None),
        (
            Global::RebuildTensorV3,
            &[
                Value::Storage(storage),
                offset,
                Value::Tuple(shape),
                Value::Tuple(strides),
                Value::Bool(_),
                Value::Dict(_),
                Value::Global(Global::Dtype(of)),
                ..,
            ],
        ) => tensor(values, storage, offset, [shape, strides], Some(of)),
        (
            Global::RebuildTensor | Global::RebuildTensorV2 | Global::RebuildTensorV3,
            _,
        ) => wrong("a tensor", "a storage, an offset, a shape, strides, a bool and a dict"),
        (Global::RebuildParameter, &[Value::Tensor(tensor), Value::Bool(_), Value::Dict(_)]) => {
            Ok(Value::Tensor(tensor))
        }
        (Global::RebuildParameter, _) => wrong("a parameter", "a tensor, a bool and a dict"),
        (Global::Storage(_) | Global::Dtype(_), _) => {
            Err("expected the constructor of a dictionary or of a tensor, found a call of a storage class or of a dtype".to_owned())
        }
    }
}

/// An `OrderedDict` as Python 2 writes it: a list of pairs.
fn ordered_dict(values: &mut Values, pairs: u32) -> Result<Value, String> {
    let mut items = Vec::new();
    values.charge::<[Value; 2]>(values.list(pairs).len())?;
    for &pair in values.list(pairs) {
        let pair = match pair {
            Value::List(pair) => values.list(pair),
            Value::Tuple(pair) => values.items(pair),
            _ => &[],
        };
        let &[key, value] = pair else {
            return Err("expected pairs of a key and a value for an OrderedDict".to_owned());
        };
        items.push([key, value]);
    }
    let dict = values.new_dict()?;
    if let Value::Dict(index) = dict {
        values.insert(index, &items)?;
    }
    Ok(dict)
}

/// The storage of a persistent id: `("storage", class, key, location, elements)`, and in the legacy format a sixth
/// element, the range of the elements that is used: `None` or `(key, first, elements)`.
pub(super) fn storage(values: &mut Values, id: Value, text: &[u8]) -> Result<Value, String> {
    const EXPECTED: &str = "expected a persistent id (\"storage\", class, key, location, elements)";
    let Value::Tuple(id) = id else {
        return Err(format!("{EXPECTED}, found {}", id.kind()));
    };
    let (kind, rest) = match values.items(id) {
        &[Value::Text(kind), ref rest @ ..] => (kind, rest),
        _ => return Err(format!("{EXPECTED}, found another tuple")),
    };
    if text.get(kind.range()) != Some(&b"storage"[..]) {
        let kind = String::from_utf8_lossy(text.get(kind.range()).unwrap_or_default()).into_owned();
        return Err(format!("{EXPECTED}, found one of {kind:?}"));
    }
    let (of, key, len, view) = match *rest {
        [Value::Global(Global::Storage(of)), Value::Text(key), Value::Text(_), Value::Int(len)] => {
            (of, key, len, Value::None)
        }
        [
            Value::Global(Global::Storage(of)),
            Value::Text(key),
            Value::Text(_),
            Value::Int(len),
            view,
        ] => (of, key, len, view),
        _ => return Err(format!("{EXPECTED}, found other elements")),
    };
    let Ok(len) = u64::try_from(len) else {
        return Err(format!("expected a number of elements of a storage, found {len}"));
    };
    let (begin, end) = match view {
        Value::None => (0, len),
        Value::Tuple(view) => match *values.items(view) {
            [Value::Text(_), Value::Int(first), Value::Int(count)] => {
                let range = u64::try_from(first).ok().zip(u64::try_from(count).ok());
                let range =
                    range.and_then(|(first, count)| Some((first, first.checked_add(count)?)));
                match range.filter(|&(_, end)| end <= len) {
                    Some(range) => range,
                    None => {
                        return Err(format!(
                            "expected a view inside the {len} elements of a storage, found {count} from element {first} on"
                        ));
                    }
                }
            }
            _ => return Err("expected a view (key, first, elements) of a storage".to_owned()),
        },
        other => {
            return Err(format!("expected None or a view of a storage, found {}", other.kind()));
        }
    };
    values.new_storage(TorchStorage { of, key, len, begin, end })
}

/// A view of a storage. `own` is the dtype of the tensor if the storage has none.
fn tensor(
    values: &mut Values,
    storage: u32,
    offset: Value,
    [shape, strides]: [Span; 2],
    own: Option<StorageType>,
) -> Result<Value, String> {
    let Some(&TorchStorage { of: class, begin, end, .. }) = values.storage(storage) else {
        return Err("expected a storage of a tensor".to_owned());
    };
    let Some(of) = own.or(class) else {
        return Err("expected a dtype for a tensor in a storage of bytes, found none".to_owned());
    };
    // Elements of the storage in the dtype of the tensor. A storage of bytes counts bytes.
    let held = class.map_or(1, |class| class.size() as u64);
    let scaled = |elements: u64| (elements.checked_mul(held), of.size() as u64);
    let in_storage = match (scaled(begin), scaled(end)) {
        ((Some(begin), size), (Some(end), _)) if begin % size == 0 => begin / size..end / size,
        _ => {
            return Err(
                "the size of a storage overflows, or is no multiple of its dtype's".to_owned()
            );
        }
    };
    let (sizes, steps) = (values.items(shape), values.items(strides));
    if sizes.len() != steps.len() || sizes.len() > MAX_DIMENSIONS {
        return Err(format!(
            "expected as many strides as sizes of a tensor, at most {MAX_DIMENSIONS}, found {} and {}",
            steps.len(),
            sizes.len()
        ));
    }
    let not_a_size = sizes.iter().chain(steps).chain([&offset]).find(|item| item.size().is_none());
    if let Some(found) = not_a_size {
        return Err(match found {
            Value::Int(found) => {
                format!("expected sizes, strides and an offset of a tensor, found {found}")
            }
            other => {
                format!("expected sizes, strides and an offset of a tensor, found {}", other.kind())
            }
        });
    }
    let offset = offset.size().unwrap_or(0) as u64;
    let available = in_storage.end - in_storage.start;
    let pairs = || {
        sizes
            .iter()
            .zip(steps)
            .map(|(a, b)| (a.size().unwrap_or(0) as u64, b.size().unwrap_or(0) as u64))
    };
    // A size of zero counts as one, so that the other sizes are still checked for overflow.
    let count = pairs().try_fold(1u64, |n, (len, _)| n.checked_mul(len.max(1)));
    let bytes = count.and_then(|count| count.checked_mul(of.size() as u64));
    if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
        return Err(format!("the size of a tensor, shape {:?}, overflows", values.sizes(shape)));
    }
    let last = pairs().try_fold(offset, |last, (len, step)| {
        last.checked_add(len.saturating_sub(1).checked_mul(step)?)
    });
    let empty = pairs().any(|(len, _)| len == 0);
    let fits = if empty { offset <= available } else { last.is_some_and(|last| last < available) };
    if !fits {
        return Err(format!(
            "a tensor of shape {:?}, strides {:?} from element {offset} on ends beyond the {available} elements of its storage",
            values.sizes(shape),
            values.sizes(strides),
        ));
    }
    if !empty && count.is_none_or(|count| count > available) {
        return Err(format!(
            "expected a tensor with at most the {available} elements of its storage, found shape {:?} with strides {:?}, which repeats elements",
            values.sizes(shape),
            values.sizes(strides),
        ));
    }
    let offset = in_storage.start + offset;
    values.new_tensor(Tensor { storage, of, offset, shape, strides })
}
