//! The options of the search, for every command whose model has a decoder: the rows of the table of settings
//! ([`Setting::all`]) that have a name, and `--strategy`.

use crate::arguments::UsageError;
use clap::builder::EnumValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use serde_json::Value;
use simdformer::config::Config;
use simdformer::search::{SampleOptions, SearchOptions, Setting, Settings};

/// The heading of these options in the help.
pub(crate) const HEADING: &str =
    "Search (default: generation_config.json, then the value in parentheses)";

/// The beams of `--strategy beam`, the tokens of `--strategy top-k` and the mass of `--strategy top-p`, unless given.
const BEAMS: usize = 4;
const TOP_K: usize = 50;
const TOP_P: f64 = 0.9;

/// A way to choose tokens, without the settings of the checkpoint for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    Greedy,
    Beam,
    Sample,
    TopK,
    TopP,
}

/// Changes of the checkpoint's search options.
#[derive(Debug, Default)]
pub(crate) struct SearchArguments {
    strategy: Option<Choice>,
    /// The settings that are given, in the order of the table.
    given: Vec<(&'static Setting, Value)>,
}

impl Args for SearchArguments {
    fn augment_args(command: Command) -> Command {
        let strategy = Arg::new("strategy")
            .long("strategy")
            .value_name("NAME")
            .value_parser(EnumValueParser::<Choice>::new())
            .hide_possible_values(true)
            .conflicts_with("sample")
            .help_heading(HEADING)
            .help("How tokens are chosen: greedy, beam, sample, top-k or top-p (what generation_config.json says)")
            .long_help(
                "How tokens are chosen: greedy, beam, sample, top-k or top-p (what generation_config.json says)\n\n\
                 greedy takes the most probable token. beam keeps the best --beams (4) hypotheses. sample draws from all \
                 tokens, top-k from the --top-k (50) most probable ones, top-p from the most probable ones that have \
                 --top-p (0.9) of the probability. The filters of generation_config.json are then off; the other options \
                 of samples can be added.",
            );
        let group = clap::ArgGroup::new("SearchArguments").multiple(true);
        let arguments = Setting::all().filter_map(argument);
        let arguments: Vec<Arg> = std::iter::once(strategy).chain(arguments).collect();
        let group = group.args(arguments.iter().map(Arg::get_id));
        command.args(arguments).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The option of a setting, if it has one.
fn argument(setting: &'static Setting) -> Option<Arg> {
    let name = setting.name?;
    let argument = Arg::new(name).long(name.replace('_', "-")).help_heading(HEADING);
    if setting.value_name.is_empty() {
        return Some(argument.help(setting.help).action(ArgAction::SetTrue));
    }
    let help = match setting.help.ends_with(')') {
        true => setting.help.to_owned(),
        false => format!("{} ({})", setting.help, setting.default_text()),
    };
    let parse = |text: &str| parsed(setting, text);
    Some(argument.help(help).value_name(setting.value_name).value_parser(parse))
}

/// The value of an option, which has the right type and is in its range.
fn parsed(setting: &Setting, text: &str) -> Result<Value, String> {
    let number = || text.parse().ok().filter(|x: &f64| x.is_finite()).map(Value::from);
    let value = text.parse().ok().map(|whole: u64| Value::from(whole)).or_else(number);
    let value = value.or_else(|| text.parse().ok().map(|flag: bool| Value::from(flag)));
    let value = value.unwrap_or_else(|| text.into());
    let mut settings = Settings::default();
    let is_right =
        setting.set_value(&mut settings, &value).is_ok() && setting.check(&settings).is_ok();
    if is_right { Ok(value) } else { Err(format!("expected {}", setting.expected())) }
}

impl FromArgMatches for SearchArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let strategy = matches.get_one("strategy").copied();
        let given = Setting::all().filter_map(|setting| {
            let name = setting.name?;
            let value = match setting.value_name.is_empty() {
                true => Some(true.into()).filter(|_| matches.get_flag(name)),
                false => matches.get_one(name).cloned(),
            };
            Some((setting, value?))
        });
        Ok(Self { strategy, given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// An error if one of `options` is given although it has no effect without `needed`.
pub(crate) fn needs(options: &[(&str, bool)], needed: &str) -> Result<(), UsageError> {
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(UsageError(format!("{option} has no effect without {needed}"))),
        None => Ok(()),
    }
}

impl SearchArguments {
    /// Whether the setting with this name is given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(setting, _)| setting.name == Some(name))
    }

    /// The search options of the checkpoint, with the changes of the command line.
    ///
    /// # Errors
    /// An option has no effect with the strategy of the search.
    pub(crate) fn options(&self, config: &Config) -> Result<SearchOptions, UsageError> {
        let mut config = config.clone();
        let settings = &mut config.settings;
        let sample = SampleOptions::default();
        match self.strategy {
            Some(Choice::Greedy) => (settings.do_sample, settings.beam.beams) = (false, 1),
            Some(Choice::Beam) => {
                settings.do_sample = false;
                settings.beam.beams = Some(settings.beam.beams).filter(|&n| n > 1).unwrap_or(BEAMS);
            }
            Some(Choice::Sample) => settings.sample = sample,
            Some(Choice::TopK) => {
                settings.sample = SampleOptions { top_k: Some(TOP_K), ..sample };
            }
            Some(Choice::TopP) => {
                settings.sample = SampleOptions { top_p: Some(TOP_P), ..sample };
            }
            None => {}
        }
        let samples = [Choice::Sample, Choice::TopK, Choice::TopP];
        if self.has("sample") || self.strategy.is_some_and(|choice| samples.contains(&choice)) {
            (settings.do_sample, settings.beam.beams) = (true, 1);
        }
        for (setting, value) in &self.given {
            let read = setting.set_value(settings, value);
            read.map_err(|(expected, found)| {
                UsageError(format!("expected {expected}, found {found}"))
            })?;
        }
        if self.strategy == Some(Choice::Greedy) {
            needs(&[("--beams", settings.beam.beams > 1)], "--strategy beam")?;
        }
        let given: Vec<&Setting> = self.given.iter().map(|(setting, _)| *setting).collect();
        if let Some(Setting { name: Some(name), needs: Some(needed), .. }) =
            settings.without_effect(&given)
        {
            needs(&[(&format!("--{}", name.replace('_', "-")), true)], &format!("--{needed}"))?;
        }
        Ok(config.search_options())
    }
}

/// Rejects options that are invalid for every input, before anything is run.
pub(crate) fn check(options: &SearchOptions, config: &Config) -> Result<(), UsageError> {
    let mut options = options.clone();
    if config.decoder.is_none() && options.start == SearchOptions::NO_START {
        // A model with only an encoder needs no decoder start token.
        options.start = 0;
    }
    // The target length is checked with the inputs.
    config.check_search(&options).map_err(|error| UsageError(error.to_string()))
}
