//! The checkpoints of a run: `checkpoints/step-N` below a directory, each written atomically.
//!
//! A checkpoint is written into `step-N.tmp` and renamed. If `step-N` already exists, it is first renamed to
//! `step-N.old`, until the second rename is done. So whenever the process or the machine stops, each step has a
//! complete checkpoint as `step-N` or as `step-N.old`. A `.tmp` directory is incomplete.

use crate::checksummed_file;
use crate::error::{Error, unreadable, unwritable};
use crate::layout::Layout;
use crate::saved_checkpoint::{self, Description};
use simdformer::train::Trainer;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "checkpoints";
const STEP: &str = "step-";
const OLD: &str = ".old";
const UNFINISHED: &str = ".tmp";

/// The checkpoints below a directory.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    folder: PathBuf,
}

/// The meaning of a name in the folder.
enum Kind {
    Whole(u64),
    /// Complete, and being replaced by a new one.
    Old(u64),
    Unfinished,
    UnsupportedFormat,
}

impl Checkpoints {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { folder: directory.join(FOLDER) }
    }

    /// The step and path of each checkpoint, ascending. Changes nothing, so it needs no lock.
    pub(crate) fn list(&self) -> Result<Vec<(u64, PathBuf)>, Error> {
        let mut found = BTreeMap::new();
        for (kind, path) in self.entries()? {
            match kind {
                Kind::Whole(step) => {
                    found.insert(step, path);
                }
                Kind::Old(step) => {
                    found.entry(step).or_insert(path);
                }
                Kind::Unfinished | Kind::UnsupportedFormat => {}
            }
        }
        Ok(found.into_iter().collect())
    }

    fn entries(&self) -> Result<Vec<(Kind, PathBuf)>, Error> {
        let mut entries = Vec::new();
        if !self.folder.exists() {
            return Ok(entries);
        }
        for entry in fs::read_dir(&self.folder).map_err(unreadable(&self.folder))? {
            let path = entry.map_err(unreadable(&self.folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            entries.push((kind(&name), path));
        }
        Ok(entries)
    }

    fn directory(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{STEP}{step}"))
    }

    /// Repairs the folder after a process that stopped in the middle of a save: renames an `.old` checkpoint whose
    /// replacement is missing back to its name, and deletes incomplete ones. Only the run that has locked the
    /// directory calls it.
    pub(crate) fn recover(&self) -> Result<(), Error> {
        for (kind, path) in self.entries()? {
            match kind {
                Kind::Old(step) => {
                    let place = self.directory(step);
                    match place.exists() {
                        true => fs::remove_dir_all(&path).map_err(unwritable(&path))?,
                        false => checksummed_file::rename(&path, &place)?,
                    }
                }
                Kind::Unfinished => fs::remove_dir_all(&path).map_err(unwritable(&path))?,
                Kind::Whole(_) | Kind::UnsupportedFormat => {}
            }
        }
        Ok(())
    }

    /// Writes the checkpoint of `step`, replaces one of the same step, and deletes all but the newest `keep` of the
    /// checkpoints up to this step. Returns the path, and the checksum of the state. Only the run that has locked the
    /// directory calls it.
    ///
    /// # Errors
    /// As [`state::write`]; existing checkpoints are unchanged.
    pub(crate) fn save(
        &self,
        (step, keep): (u64, usize),
        trainer: &Trainer<'_>,
        layout: &Layout,
        description: Description<'_>,
    ) -> Result<(PathBuf, u64), Error> {
        self.recover()?;
        let place = self.directory(step);
        let temporary = checksummed_file::temporary_path(&place);
        let seal = saved_checkpoint::write(trainer, layout, &temporary, description)?;
        if place.exists() {
            let old = self.folder.join(format!("{STEP}{step}{OLD}"));
            checksummed_file::rename(&place, &old)?;
            if let Err(error) = checksummed_file::rename(&temporary, &place) {
                // If this rename also fails, `recover` does it at the next start.
                let _ = checksummed_file::rename(&old, &place);
                return Err(error);
            }
            fs::remove_dir_all(&old).map_err(unwritable(&old))?;
        } else {
            checksummed_file::rename(&temporary, &place)?;
        }
        self.prune(step, keep)?;
        Ok((place, seal))
    }

    /// Keeps `newest` and the `keep - 1` checkpoints before it, and deletes older ones. Later checkpoints do not
    /// belong to this run and are not changed.
    fn prune(&self, newest: u64, keep: usize) -> Result<(), Error> {
        let steps = self.list()?;
        let own = steps.into_iter().rev().filter(|(step, _)| *step <= newest);
        for (_, old) in own.skip(keep.max(1)) {
            // Rename to an incomplete name first, so that a partly deleted checkpoint is never used.
            let removed = checksummed_file::temporary_path(&old);
            checksummed_file::rename(&old, &removed)?;
            fs::remove_dir_all(&removed).map_err(unwritable(&removed))?;
        }
        Ok(())
    }
}

fn kind(name: &str) -> Kind {
    let Some(rest) = name.strip_prefix(STEP) else { return Kind::UnsupportedFormat };
    if rest.ends_with(UNFINISHED) {
        return Kind::Unfinished;
    }
    let (number, old) = match rest.strip_suffix(OLD) {
        Some(number) => (number, true),
        None => (rest, false),
    };
    // Only the exact number format that this crate writes: no leading zeros and no sign.
    match number.parse::<u64>().ok().filter(|step| step.to_string() == number) {
        Some(step) if old => Kind::Old(step),
        Some(step) => Kind::Whole(step),
        None => Kind::UnsupportedFormat,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simdformer_testing::temporary_folder::TemporaryFolder;

    /// A directory lists its names in any order, so one step alone would pass by chance.
    #[test]
    fn a_whole_checkpoint_is_listed_instead_of_an_old_one() {
        let folder = TemporaryFolder::new("listed");
        let checkpoints = Checkpoints::new(folder.path());
        assert!(checkpoints.list().expect("a list").is_empty());
        let mut expected = Vec::new();
        for step in 1..=40 {
            let whole = checkpoints.directory(step);
            let old = checkpoints.folder.join(format!("{STEP}{step}{OLD}"));
            let has_old = step % 3 > 0;
            if has_old {
                fs::create_dir_all(&old).expect("a directory");
            }
            let has_whole = step % 3 < 2;
            if has_whole {
                fs::create_dir_all(&whole).expect("a directory");
            }
            fs::create_dir_all(checksummed_file::temporary_path(&whole)).expect("a directory");
            expected.push((step, if has_whole { whole } else { old }));
        }
        assert_eq!(checkpoints.list().expect("a list"), expected);
        checkpoints.recover().expect("repaired");
        expected = (1..=40).map(|step| (step, checkpoints.directory(step))).collect();
        assert_eq!(checkpoints.list().expect("a list"), expected);
        assert_eq!(checkpoints.entries().expect("names").len(), 40);
    }
}
