//! What a checkpoint has: its tensors, files and dtypes, and what of them the model does not use.

use super::Checkpoint;
use super::byte_source::Source;
use super::names::{self, Location};
use crate::error::Error;
use crate::network::TensorId;
use crate::printable_text::sanitized;
use std::collections::{BTreeMap, HashSet};

impl Checkpoint<'_> {
    /// The names of matrices that the configuration ties and that have different numbers.
    pub(super) fn untied(&self) -> impl Iterator<Item = [String; 2]> {
        use TensorId::{Output, SourceEmbedding, TargetEmbedding};
        let (claimed, found) = (self.claimed, self.config.ties);
        let tables = [
            (SourceEmbedding, TargetEmbedding, claimed.source_target && !found.source_target),
            (TargetEmbedding, Output, claimed.target_output && !found.target_output),
        ];
        let name =
            |role| self.locations.get(&role).map(|location: &Location| location.name.clone());
        let tables = tables.into_iter().filter(|&(.., untied)| untied);
        // A matrix that the model does not have has no location.
        tables.filter_map(move |(first, second, _)| Some([name(first)?, name(second)?]))
    }

    /// For each role the tensors that no role uses although they have one of its names, if their numbers are not those of
    /// the tensor that is used.
    pub(super) fn different_copies(&self) -> Result<Vec<[String; 2]>, Error> {
        let used: HashSet<&str> = self.locations.values().map(|at| at.name.as_str()).collect();
        let (mut copies, mut seen) = (Vec::new(), HashSet::new());
        for role in TensorId::all(&self.config) {
            let Some(at) = self.locations.get(&role) else { continue };
            for Location { name, .. } in self.locate(role) {
                let unused = self.tensors.contains_key(&name) && !used.contains(name.as_str());
                if !unused || !seen.insert(name.clone()) {
                    continue;
                }
                // A tensor of integers is no copy.
                let same = match self.named(&name) {
                    Ok(copy) => self.named(&at.name)?.same_content(&copy)?,
                    Err(_) => false,
                };
                if !same {
                    copies.push([at.name.clone(), name]);
                }
            }
        }
        Ok(copies)
    }

    /// What the checkpoint has that its model does not use, or uses in another way than the configuration says, each a
    /// sentence to print: matrices that the configuration ties and that differ, different copies of one matrix, tensors that
    /// no part of the model is, tensors that the index of the shards does not list. Empty for [packed](Self::is_packed)
    /// weights, whose notes were those of the checkpoint that was packed.
    ///
    /// ```
    /// use simdformer::checkpoint::Checkpoint;
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// for note in Checkpoint::open("models/fr-en")?.notes() {
    ///     println!("note: {note}"); // there is none
    /// }
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn notes(&self) -> Vec<String> {
        if self.is_packed() {
            return Vec::new();
        }
        let untied = self.untied().map(|[first, second]| {
            format!(
                "the configuration ties {first} and {second}, but their numbers or dtypes differ: each is used as it is"
            )
        });
        let copies = self.copies.iter().map(|[used, unused]| {
            format!(
                "{used} and {unused} are two names of one matrix, but their numbers or dtypes differ: {used} is used"
            )
        });
        let unused = first_names(&self.unused());
        let unused = unused.map(|names| format!("tensors that no part of the model is: {names}"));
        let unlisted: Vec<&str> = self.unlisted.iter().map(String::as_str).collect();
        let unlisted = first_names(&unlisted)
            .map(|names| format!("tensors that the index of the shards does not list: {names}"));
        untied.chain(copies).chain(unused).chain(unlisted).collect()
    }

    /// The names of all tensors, sorted, without the parts that wrappers of PyTorch add: `_orig_mod` of `torch.compile`,
    /// `module` of `DataParallel`. For a checkpoint from [tensors in the caller's
    /// memory](Self::from_tensors), only those that `find` returned.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The names of tensors that no role uses, sorted, without those that the family always writes but the model
    /// does not need.
    pub fn unused(&self) -> Vec<&str> {
        let family = self.config.family;
        let used: HashSet<String> = TensorId::all(&self.config)
            .flat_map(|role| self.locate(role))
            .map(|location| location.name)
            .collect();
        self.names()
            .filter(|&name| !used.contains(name) && !names::ignorable(family, name))
            .collect()
    }

    /// The files that contain the weights, by the paths that were opened, or `"memory"`.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let packed = self.packed.iter().map(|file| file.name.as_str());
        packed.chain(self.sources.iter().map(Source::name))
    }

    /// Size in bytes of the files, or of the memory, that contain the weights.
    pub fn bytes(&self) -> u64 {
        self.sources.iter().map(Source::len).sum()
    }

    /// The dtypes of all tensors in safetensors spelling, and how many tensors have each; sorted by name.
    pub fn dtypes(&self) -> Vec<(String, usize)> {
        let mut counts = BTreeMap::new();
        for (_, entry) in self.tensors.values() {
            *counts.entry(entry.dtype.to_string()).or_default() += 1;
        }
        counts.into_iter().collect()
    }
}

/// The first names, and how many more there are; `None` if there is none.
fn first_names(names: &[&str]) -> Option<String> {
    const LISTED: usize = 5;
    let listed: Vec<String> = names.iter().take(LISTED).map(|name| sanitized(name, 400)).collect();
    let listed = listed.join(", ");
    match names.len().saturating_sub(LISTED) {
        0 if listed.is_empty() => None,
        0 => Some(listed),
        more => Some(format!("{listed} and {more} more")),
    }
}
