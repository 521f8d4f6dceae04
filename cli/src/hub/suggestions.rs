//! Names that a user may have meant.

use crate::hub::client::{Client, encoded};
use crate::hub::model_name::{ModelName, is_revision};
use serde_json::Value;
use simdformer_text::nearest;
use std::fs;
use std::path::Path;

/// The most names that are suggested.
const MOST: usize = 3;
/// The largest list of names.
const BYTES: u64 = 4 << 20;
/// The most models of a cache that are looked at.
const CACHED: usize = 10_000;

/// Models of the hub and of the cache with similar names. Errors give fewer names.
pub(crate) fn models(client: &Client<'_>, name: &ModelName) -> Vec<String> {
    let endpoint = &client.environment.endpoint;
    let [organization, model] = [name.organization(), name.name()].map(|part| encoded(part, false));
    let mut known = in_cache(&client.environment.cache);
    for query in [format!("author={organization}&limit=1000"), format!("search={model}&limit=20")] {
        let url = format!("{endpoint}/api/models?{query}");
        let Ok((bytes, _)) = client.read(&url, BYTES, 0, name) else { continue };
        let models: Vec<Value> = serde_json::from_slice(&bytes).unwrap_or_default();
        let ids = models.iter().filter_map(|model| model["id"].as_str());
        // A name of a server is shown only if it is one.
        known.extend(ids.filter(|id| id.parse::<ModelName>().is_ok()).map(str::to_owned));
    }
    similar(&name.repository(), known)
}

/// Models of a cache with similar names.
pub(crate) fn cached_models(cache: &Path, name: &ModelName) -> Vec<String> {
    let mut known = in_cache(cache);
    known.retain(|known| *known != name.repository());
    similar(&name.repository(), known)
}

/// Branches and tags with similar names; if none is similar, the first ones.
pub(crate) fn revisions(client: &Client<'_>, name: &ModelName) -> Vec<String> {
    let url = format!("{}/api/models/{}/refs", client.environment.endpoint, name.repository());
    let Ok((bytes, _)) = client.read(&url, BYTES, 0, name) else { return Vec::new() };
    let refs: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let lists = ["branches", "tags"].iter().filter_map(|list| refs[list].as_array());
    let names = lists.flatten().filter_map(|one| one["name"].as_str());
    let mut known: Vec<String> =
        names.filter(|name| is_revision(name)).map(str::to_owned).collect();
    let found = similar(name.revision(), known.clone());
    if !found.is_empty() {
        return found;
    }
    known.truncate(MOST);
    known
}

fn in_cache(cache: &Path) -> Vec<String> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten().take(CACHED);
    let folders = entries.filter_map(|entry| entry.file_name().into_string().ok());
    folders
        .filter_map(|folder| ModelName::of_folder(&folder))
        .map(|name| name.repository())
        .collect()
}

/// The names that differ least.
fn similar(wanted: &str, known: Vec<String>) -> Vec<String> {
    nearest(wanted, known.iter().map(String::as_str), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_names_come_first() {
        let known =
            ["Helsinki-NLP/opus-mt-en-fr", "Helsinki-NLP/opus-mt-fr-en", "google/flan-t5-base"];
        let known: Vec<String> = known.map(str::to_owned).to_vec();
        assert_eq!(similar("helsinki-nlp/opus-mt-enfr", known.clone())[0], known[0]);
        assert_eq!(similar("google/flan-t5-bse", known.clone()), [known[2].clone()]);
        assert!(similar("a/b", known).is_empty());
    }
}
