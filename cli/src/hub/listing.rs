//! The list of a model's files at one commit, with their sizes and checksums.

use crate::hub::client::{Client, encoded};
use crate::hub::error::HubError;
use crate::hub::model_name::{ModelName, is_hex, is_relative};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The largest description of a model, and the largest page of its files.
const PAGE_BYTES: u64 = 32 << 20;
/// The most pages. A page of the Hugging Face hub has a thousand files.
const PAGES: usize = 100;
/// The version of the format in which the Python client keeps a list.
const FORMAT: u64 = 1;

/// The files of a model at one commit, which never change.
#[derive(Debug, PartialEq)]
pub(crate) struct Listing {
    pub(crate) commit: String,
    files: BTreeMap<String, Entry>,
}

/// A file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) size: u64,
    /// The SHA-1 that git computes of the file, or of the pointer that stands for it.
    git: String,
    /// The SHA-256 of a file in the large file storage.
    lfs: Option<String>,
    /// The name of the file in another storage, which only the Python client uses.
    xet: Option<String>,
}

impl Entry {
    /// The checksum of the content: a SHA-256 of 64 digits, or a SHA-1 of git of 40. The name of the blob in a cache.
    pub(crate) fn etag(&self) -> &str {
        self.lfs.as_ref().unwrap_or(&self.git)
    }

    /// Whether the checksum is a SHA-256 of the content alone.
    pub(crate) fn is_sha256(&self) -> bool {
        self.lfs.is_some()
    }
}

impl Listing {
    /// The commit that a revision now is.
    pub(crate) fn commit_of(
        client: &Client<'_>,
        name: &ModelName,
        attempts: u32,
    ) -> Result<String, HubError> {
        let revision = encoded(name.revision(), false);
        let url = format!(
            "{}/api/models/{}/revision/{revision}",
            client.environment.endpoint,
            name.repository()
        );
        let (bytes, _) = client.fetch_body(&url, PAGE_BYTES, attempts, name)?;
        let about: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match about["sha"].as_str().filter(|commit| is_hex(commit, 40)) {
            Some(commit) => Ok(commit.to_owned()),
            None => {
                let reason = "expected the description of a model with its commit".to_owned();
                Err(HubError::Unexpected { url, reason })
            }
        }
    }

    /// Requests the list of files.
    pub(crate) fn fetch(
        client: &Client<'_>,
        name: &ModelName,
        commit: String,
        attempts: u32,
    ) -> Result<Self, HubError> {
        let endpoint = &client.environment.endpoint;
        let repository = name.repository();
        let start = format!("{endpoint}/api/models/{repository}/tree/{commit}?recursive=true");
        let (mut next, mut files) = (Some(start), BTreeMap::new());
        for _ in 0..PAGES {
            let Some(url) = next.take() else { return Ok(Self { commit, files }) };
            let (bytes, after) = client.fetch_body(&url, PAGE_BYTES, attempts, name)?;
            let page: Option<Vec<Value>> = serde_json::from_slice(&bytes).ok();
            let Some(page) = page else {
                let reason = "expected a list of files".to_owned();
                return Err(HubError::Unexpected { url, reason });
            };
            for file in page {
                if file["type"] != "file" {
                    continue;
                }
                let (Some(path), Some(entry)) = (file["path"].as_str(), of_hub(&file)) else {
                    let reason = "expected a file with its path, size and checksum".to_owned();
                    return Err(HubError::Unexpected { url, reason });
                };
                // No file outside of the directory is ever wanted.
                if is_relative(path) {
                    files.insert(path.to_owned(), entry);
                }
            }
            next = after;
        }
        let reason = format!("expected at most {PAGES} pages of files, found more");
        Err(HubError::Unexpected { url: endpoint.clone(), reason })
    }

    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.files.keys().cloned().collect()
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Entry> {
        self.files.get(path)
    }

    /// Reads a list that this command or the Python client keeps in a cache.
    pub(crate) fn of_cache(commit: &str, bytes: &[u8]) -> Option<Self> {
        let kept: Value = serde_json::from_slice(bytes).ok()?;
        if kept["format_version"] != FORMAT {
            return None;
        }
        let mut files = BTreeMap::new();
        for (path, file) in kept["files"].as_object()? {
            let text = |key: &str| file[key].as_str().map(str::to_owned);
            let size = file["lfs_size"].as_u64().or_else(|| file["size"].as_u64())?;
            let entry = Entry {
                size,
                git: text("blob_id")?,
                lfs: text("lfs_sha256"),
                xet: text("xet_hash"),
            };
            files.insert(path.clone(), checked(entry)?);
        }
        Some(Self { commit: commit.to_owned(), files })
    }

    /// The list in the format of the Python client.
    pub(crate) fn to_cache(&self) -> String {
        let files: Map<String, Value> = self
            .files
            .iter()
            .map(|(path, entry)| {
                let mut file = json!({"size": entry.size, "blob_id": entry.git});
                if let Some(lfs) = &entry.lfs {
                    file["lfs_sha256"] = json!(lfs);
                    file["lfs_size"] = json!(entry.size);
                }
                if let Some(xet) = &entry.xet {
                    file["xet_hash"] = json!(xet);
                }
                (path.clone(), file)
            })
            .collect();
        json!({"format_version": FORMAT, "files": files}).to_string()
    }
}

/// The entry of a file as a hub describes it.
fn of_hub(file: &Value) -> Option<Entry> {
    let lfs = &file["lfs"];
    checked(Entry {
        size: lfs["size"].as_u64().or_else(|| file["size"].as_u64())?,
        git: file["oid"].as_str()?.to_owned(),
        lfs: lfs["oid"].as_str().map(str::to_owned),
        xet: file["xetHash"].as_str().map(str::to_owned),
    })
}

/// The checksums become names of files, so they have only digits.
fn checked(entry: Entry) -> Option<Entry> {
    let lfs = entry.lfs.as_ref().is_none_or(|lfs| is_hex(lfs, 64));
    let xet = entry.xet.as_ref().is_none_or(|xet| is_hex(xet, 64));
    (is_hex(&entry.git, 40) && lfs && xet).then_some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_list_is_read_as_it_was_and_others_are_not_read() {
        let entry = |lfs: Option<&str>| Entry {
            size: 7,
            git: "a".repeat(40),
            lfs: lfs.map(|digit| digit.repeat(64)),
            xet: None,
        };
        let files = [("config.json", entry(None)), ("model.safetensors", entry(Some("b")))];
        let files = files.map(|(path, entry)| (path.to_owned(), entry)).into();
        let listing = Listing { commit: "c".repeat(40), files };
        let text = listing.to_cache();
        assert_eq!(Listing::of_cache(&listing.commit, text.as_bytes()).as_ref(), Some(&listing));
        for (part, other) in [
            ("\"format_version\":1", "\"format_version\":2"),
            ("aaaa", "../a"),
            ("bbbb", "bb"),
            ("\"size\":7", "\"size\":-7"),
            ("{\"files\"", "[\"files\""),
        ] {
            let changed = text.replace(part, other);
            assert_ne!(changed, text);
            assert_eq!(Listing::of_cache("x", changed.as_bytes()), None, "{changed}");
        }
    }
}
