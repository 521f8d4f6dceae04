//! A byte trie of keys with ids. The children of a node are contiguous.

/// The root node.
pub(crate) const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

/// A trie with 9 bytes per node. Nodes are numbered level by level, so the children of one parent are contiguous, in
/// the order of their labels.
#[derive(Debug)]
pub(crate) struct Trie {
    /// The byte on the edge to each node.
    labels: Vec<u8>,
    /// The first child of each node; its last child is before the first child of the next node.
    first: Vec<u32>,
    /// The id of the key that ends at each node.
    ids: Vec<u32>,
    /// The root's children by label, because every lookup begins there.
    from_root: Box<[u32; 256]>,
}

impl Trie {
    /// Builds a trie of keys with ids; of equal keys, one is used. The total length of the keys must be less than
    /// 2^31 bytes.
    pub(crate) fn new<'k>(keys: impl Iterator<Item = (&'k [u8], u32)>) -> Self {
        let mut keys: Vec<(&[u8], u32)> = keys.filter(|(key, _)| !key.is_empty()).collect();
        keys.sort_unstable();
        keys.dedup_by_key(|(key, _)| *key);
        let mut trie = Self {
            labels: vec![0],
            first: Vec::new(),
            ids: Vec::new(),
            from_root: Box::new([NONE; 256]),
        };
        // A queue of nodes without children: their keys, and the length of their common prefix.
        let mut nodes = std::collections::VecDeque::from([(0, keys.len(), 0)]);
        while let Some((mut from, to, depth)) = nodes.pop_front() {
            let mut id = NONE;
            if let Some((key, of)) = keys.get(from)
                && key.len() == depth
                && from < to
            {
                id = *of;
                from += 1;
            }
            trie.ids.push(id);
            trie.first.push(trie.labels.len() as u32);
            while from < to {
                let label = keys[from].0[depth];
                let same = keys[from..to].partition_point(|(key, _)| key[depth] == label);
                trie.labels.push(label);
                nodes.push_back((from, from + same, depth + 1));
                from += same;
            }
        }
        trie.first.push(trie.labels.len() as u32);
        for child in trie.children(ROOT) {
            trie.from_root[usize::from(trie.labels[child])] = child as u32;
        }
        trie
    }

    fn children(&self, node: u32) -> std::ops::Range<usize> {
        let node = node as usize;
        match (self.first.get(node), self.first.get(node + 1)) {
            (Some(&from), Some(&to)) => from as usize..to as usize,
            _ => 0..0,
        }
    }

    /// The child of `node` under `label`.
    #[inline]
    pub(crate) fn child(&self, node: u32, label: u8) -> Option<u32> {
        if node == ROOT {
            let child = self.from_root[usize::from(label)];
            return (child != NONE).then_some(child);
        }
        let children = self.children(node);
        let labels = self.labels.get(children.clone())?;
        let at = if labels.len() <= 8 {
            labels.iter().position(|&of| of == label)?
        } else {
            labels.binary_search(&label).ok()?
        };
        Some((children.start + at) as u32)
    }

    /// The node that is reached from `node` by `bytes`.
    pub(crate) fn walk(&self, node: u32, bytes: &[u8]) -> Option<u32> {
        bytes.iter().try_fold(node, |node, &byte| self.child(node, byte))
    }

    /// The id of the key that ends at `node`.
    #[inline]
    pub(crate) fn id(&self, node: u32) -> Option<u32> {
        self.ids.get(node as usize).copied().filter(|&id| id != NONE)
    }

    /// The id of a key.
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        self.id(self.walk(ROOT, key)?)
    }

    /// The length of the longest key that is a prefix of `text`.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<usize> {
        let (mut node, mut longest) = (ROOT, None);
        for (before, &byte) in text.iter().enumerate() {
            let Some(child) = self.child(node, byte) else { break };
            node = child;
            if self.id(node).is_some() {
                longest = Some(before + 1);
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::{ROOT, Trie};

    #[test]
    fn finds_what_is_in_it_and_nothing_else() {
        let keys = ["a", "ab", "abc", "b", "\u{2581}", "\u{2581}the", "zz"];
        let trie = Trie::new(keys.iter().enumerate().map(|(id, key)| (key.as_bytes(), id as u32)));
        for (id, key) in keys.iter().enumerate() {
            assert_eq!(trie.find(key.as_bytes()), Some(id as u32), "{key}");
        }
        assert_eq!(trie.walk(ROOT, b"z").map(|node| trie.id(node)), Some(None));
        assert_eq!(trie.walk(ROOT, b"ac"), None);
        assert_eq!(trie.longest(b"abd"), Some(2));
        assert_eq!(trie.longest(b"zy"), None);
        assert_eq!(Trie::new(std::iter::empty()).longest(b"a"), None);
    }
}
