//! The texts that T5 and its relatives read before a sentence: `translate English to German: `.

use crate::directory::Settings;
use crate::error::Error;
use crate::languages::Direction;
use serde_json::Value;

/// The longest prefix, in bytes. Published ones have 30.
const LONGEST: usize = 4096;

/// The tasks of `task_specific_params` in `config.json` that have a prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskPrefixes {
    tasks: Vec<Task>,
    /// Beside equal codes.
    same: Option<SameLanguage>,
}

#[derive(Clone, Debug)]
struct Task {
    /// `summarization`, `translation_en_to_de`.
    name: String,
    prefix: String,
}

impl Task {
    /// The languages of a translation.
    fn languages(&self) -> Option<[&str; 2]> {
        let (source, target) = self.name.strip_prefix("translation_")?.split_once("_to_")?;
        Some([source, target])
    }
}

/// Whether two codes are of one language: `eng` and `en`.
pub(crate) type SameLanguage = fn(&str, &str) -> bool;

impl TaskPrefixes {
    pub(crate) fn from_config(config: &Settings) -> Result<Self, Error> {
        const KEY: &str = "task_specific_params";
        let Some(tasks) = config.get(KEY) else { return Ok(Self::default()) };
        let wrong =
            |value: &Value| config.wrong(KEY, "an object of tasks and their settings", value);
        let tasks = tasks.as_object().ok_or_else(|| wrong(tasks))?;
        let mut found = Vec::new();
        for (name, settings) in tasks {
            let settings = settings.as_object().ok_or_else(|| wrong(settings))?;
            let Some(prefix) = settings.get("prefix").filter(|prefix| !prefix.is_null()) else {
                continue;
            };
            let text = prefix.as_str().filter(|text| text.len() <= LONGEST);
            let text = text.ok_or_else(|| {
                config.wrong(KEY, &format!("prefixes of at most {LONGEST} bytes"), prefix)
            })?;
            if !text.is_empty() {
                found.push(Task { name: name.clone(), prefix: text.to_owned() });
            }
        }
        Ok(Self { tasks: found, same: None })
    }

    /// The same tasks, whose languages have other codes, too.
    pub(crate) fn with_same_language(self, same: SameLanguage) -> Self {
        Self { same: Some(same), ..self }
    }

    /// The prefix of a task.
    pub(crate) fn prefix_of(&self, task: &str) -> Option<&str> {
        self.tasks.iter().find(|one| one.name == task).map(|one| &*one.prefix)
    }

    /// Whether there is a translation.
    pub(crate) fn translate(&self) -> bool {
        self.tasks.iter().any(|task| task.languages().is_some())
    }

    /// The only translation from the languages of `direction`: its prefix and its source language. `None` if there are
    /// several, so that a text has a prefix of its own or its language must be said.
    ///
    /// # Errors
    /// There are translations, but none of the languages that were asked for.
    pub(crate) fn choose(&self, direction: &Direction<'_>) -> Result<Option<(&str, &str)>, Error> {
        let Direction { source, target } = *direction;
        // Any language fits if none is asked for.
        let fits = |asked: Option<&str>, of_task: &str| {
            let same = |asked| self.same.is_some_and(|same| same(asked, of_task));
            asked.is_none_or(|asked| asked == of_task || same(asked))
        };
        let translations = || self.tasks.iter().filter_map(|task| Some((task, task.languages()?)));
        let mut fitting = translations()
            .filter(|(_, [from, to])| fits(source, from) && fits(target, to))
            .map(|(task, [from, _])| (&*task.prefix, from));
        match (fitting.next(), fitting.next()) {
            (Some(one), None) => Ok(Some(one)),
            (Some(_), Some(_)) => Ok(None),
            (None, _) => {
                let source_is_known = translations().any(|(_, [from, _])| fits(source, from));
                let (asked, place) = if source_is_known { (target, 1) } else { (source, 0) };
                let Some(code) = asked else { return Ok(None) };
                let mut nearest: Vec<String> = translations()
                    .filter(|(_, [from, _])| place == 0 || fits(source, from))
                    .map(|(_, languages)| languages[place].to_owned())
                    .collect();
                nearest.sort_unstable();
                nearest.dedup();
                if nearest.is_empty() {
                    return Ok(None);
                }
                Err(Error::no_language(code, nearest))
            }
        }
    }
}
