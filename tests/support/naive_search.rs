//! The searches, written to be read: vectors, clones and sorts, one sentence at a time.
//!
//! Beam search follows the tensor program of the reference slot by slot, with its fills of -1e9. The
//! library instead leaves out hypotheses that do not exist.

/// The fill of the reference for hypotheses that must not win.
const NEVER: f32 = -1.0e9;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Early {
    True,
    False,
    Never,
}

#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) eos: Vec<u32>,
    pub(crate) repetition_penalty: f32,
    pub(crate) no_repeat_ngram: usize,
    pub(crate) bad_words: Vec<Vec<u32>>,
    pub(crate) min_length: usize,
    pub(crate) min_new_tokens: usize,
    pub(crate) forced_bos: Option<u32>,
    pub(crate) forced_eos: Option<u32>,
    pub(crate) suppress: Vec<u32>,
    pub(crate) begin_suppress: Vec<u32>,
}

impl Rules {
    pub(crate) fn none(eos: &[u32]) -> Self {
        Self {
            eos: eos.to_vec(),
            repetition_penalty: 1.0,
            no_repeat_ngram: 0,
            bad_words: vec![],
            min_length: 0,
            min_new_tokens: 0,
            forced_bos: None,
            forced_eos: None,
            suppress: vec![],
            begin_suppress: vec![],
        }
    }

    /// The scores after all rules.
    pub(crate) fn apply(
        &self,
        history: &[u32],
        prompt: usize,
        max_length: usize,
        scores: &[f32],
    ) -> Vec<f32> {
        let mut out = scores.to_vec();
        let dead = f32::NEG_INFINITY;
        let len = history.len();
        for (token, score) in out.iter_mut().enumerate() {
            if self.repetition_penalty != 1.0 && history.contains(&(token as u32)) {
                *score = if *score < 0.0 {
                    *score * self.repetition_penalty
                } else {
                    *score / self.repetition_penalty
                };
            }
        }
        let n = self.no_repeat_ngram;
        for (token, score) in out.iter_mut().enumerate() {
            let mut text = history.to_vec();
            text.push(token as u32);
            if n > 0 && text.len() > n {
                let new = text[text.len() - n..].to_vec();
                if history.windows(n).any(|old| old == new) {
                    *score = dead;
                }
            }
            for word in &self.bad_words {
                let only_end = word.len() == 1 && self.eos.contains(&word[0]);
                if !only_end && text.ends_with(word) {
                    *score = dead;
                }
            }
            let end = self.eos.contains(&(token as u32));
            if end && (len < self.min_length || len - prompt < self.min_new_tokens) {
                *score = dead;
            }
        }
        if let Some(first) = self.forced_bos
            && len == 1
        {
            out = vec![dead; out.len()];
            out[first as usize] = 0.0;
        }
        if let Some(last) = self.forced_eos
            && len == max_length - 1
        {
            out = vec![dead; out.len()];
            out[last as usize] = 0.0;
        }
        for &token in &self.suppress {
            out[token as usize] = dead;
        }
        let begin = prompt + usize::from(prompt == 1 && self.forced_bos.is_some());
        if len == begin {
            for &token in &self.begin_suppress {
                out[token as usize] = dead;
            }
        }
        out
    }
}

pub(crate) fn log_softmax(row: &[f32]) -> Vec<f32> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|&x| f64::from(x - max).exp()).sum();
    row.iter().map(|&x| (x - max) - sum.ln() as f32).collect()
}

pub(crate) type Model<'m> = &'m dyn Fn(&[u32]) -> Vec<f32>;

pub(crate) fn greedy(
    model: Model<'_>,
    rules: &Rules,
    prompt: &[u32],
    max_length: usize,
) -> (Vec<u32>, f32) {
    let mut text = prompt.to_vec();
    let mut score = 0.0;
    while text.len() < max_length {
        let row = rules.apply(&text, prompt.len(), max_length, &model(&text));
        let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let token = row.iter().position(|&x| x == best).unwrap();
        score += log_softmax(&row)[token];
        text.push(token as u32);
        if rules.eos.contains(&(token as u32)) {
            break;
        }
    }
    (text[prompt.len()..].to_vec(), score)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Beams {
    pub(crate) beams: usize,
    pub(crate) length_penalty: f64,
    pub(crate) early: Early,
    pub(crate) groups: usize,
    pub(crate) diversity: f32,
}

/// One beam search: the model and the rules.
struct Task<'t> {
    model: Model<'t>,
    rules: &'t Rules,
    /// Tokens of the prompt.
    prompt: usize,
    max_length: usize,
    beams: Beams,
}

#[derive(Clone)]
struct Running {
    text: Vec<u32>,
    score: f32,
}

#[derive(Clone)]
struct Finished {
    text: Vec<u32>,
    score: f32,
    real: bool,
}

/// The indices of the k largest values. Of equal values the first comes first.
fn top(values: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]).then(a.cmp(&b)));
    order.truncate(k);
    order
}

/// All finished hypotheses, best first: generated tokens and score.
pub(crate) fn beam_search(
    model: Model<'_>,
    rules: &Rules,
    prompt: &[u32],
    max_length: usize,
    beams: Beams,
) -> Vec<(Vec<u32>, f32)> {
    let task = Task { model, rules, prompt: prompt.len(), max_length, beams };
    let size = beams.beams / beams.groups;
    let mut groups: Vec<Group> = (0..beams.groups).map(|_| Group::new(prompt, size)).collect();
    for len in prompt.len()..max_length {
        let mut chosen: Vec<u32> = vec![];
        for group in &mut groups {
            if !group.done {
                group.step(&task, len, &chosen);
            }
            if !group.done {
                chosen.extend(group.running.iter().filter_map(|r| r.text.last()));
            }
        }
        if groups.iter().all(|group| group.done) {
            break;
        }
    }
    let mut all: Vec<Finished> =
        groups.into_iter().flat_map(|g| g.finished).filter(|f| f.real).collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut out: Vec<(Vec<u32>, f32)> = vec![];
    for f in all {
        let text = f.text[prompt.len()..].to_vec();
        if out.iter().all(|(earlier, _)| *earlier != text) {
            out.push((text, f.score));
        }
    }
    out
}

struct Group {
    running: Vec<Running>,
    finished: Vec<Finished>,
    improvable: bool,
    done: bool,
}

impl Group {
    fn new(prompt: &[u32], size: usize) -> Self {
        let running =
            |i: usize| Running { text: prompt.to_vec(), score: if i == 0 { 0.0 } else { NEVER } };
        let empty = Finished { text: prompt.to_vec(), score: NEVER, real: false };
        Self {
            running: (0..size).map(running).collect(),
            finished: vec![empty; size],
            improvable: true,
            done: false,
        }
    }

    /// From `len` tokens to one more. Earlier groups have chosen `chosen`.
    fn step(&mut self, task: &Task<'_>, len: usize, chosen: &[u32]) {
        let &Task { model, rules, prompt, max_length, beams } = task;
        let size = self.running.len();
        let mut sums = vec![];
        let mut vocabulary = 0;
        for beam in &self.running {
            let log_p = log_softmax(&model(&beam.text));
            let mut row = rules.apply(&beam.text, prompt, max_length, &log_p);
            for &token in chosen {
                row[token as usize] -= beams.diversity;
            }
            vocabulary = row.len();
            sums.extend(row.iter().map(|x| x + beam.score));
        }
        let keep = (1 + rules.eos.len()).max(2) * size;
        let mut candidates = vec![];
        for index in top(&sums, keep) {
            let mut text = self.running[index / vocabulary].text.clone();
            text.push((index % vocabulary) as u32);
            let ended = rules.eos.contains(text.last().unwrap()) || text.len() >= max_length;
            candidates.push((text, sums[index], ended));
        }
        let pushed: Vec<f32> = candidates
            .iter()
            .map(|(_, score, ended)| score + if *ended { NEVER } else { 0.0 })
            .collect();
        let running = top(&pushed, size)
            .into_iter()
            .map(|i| Running { text: candidates[i].0.clone(), score: pushed[i] });
        self.running = running.collect();

        let was_full = self.finished.iter().all(|f| f.real);
        let mut merged = self.finished.clone();
        let length = ((len + 1 - prompt) as f64).powf(beams.length_penalty) as f32;
        for (rank, (text, score, ended)) in candidates.iter().enumerate() {
            let mut score = score / length;
            let real = *ended && rank < size;
            if was_full && beams.early == Early::True {
                score += NEVER;
            }
            if !self.improvable {
                score += NEVER;
            }
            if !real {
                score += NEVER;
            }
            merged.push(Finished { text: text.clone(), score, real });
        }
        let scores: Vec<f32> = merged.iter().map(|f| f.score).collect();
        self.finished = top(&scores, size).into_iter().map(|i| merged[i].clone()).collect();

        let now = len + 1;
        let hoped = if beams.early == Early::Never && beams.length_penalty > 0.0 {
            max_length - prompt
        } else {
            now - prompt
        };
        let best = self.running[0].score / (hoped as f64).powf(beams.length_penalty) as f32;
        let least = self.finished.iter().map(|f| f.score).fold(f32::INFINITY, f32::min);
        let full = self.finished.iter().all(|f| f.real);
        let worst = if full { least } else { NEVER };
        self.improvable &= best > worst;
        self.done = !self.improvable
            || (full && beams.early == Early::True)
            || candidates.iter().all(|c| c.2);
    }
}
