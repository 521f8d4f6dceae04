//! A model and its planned memory, step by step: the class behind `simdformer.Session`.

use crate::arrays::{PyRows, Rows};
use crate::errors::Failure;
use crate::model::Model;
use crate::pool::{Call, Workers};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use simdformer::trace::{Probe, Stage, View};
use simdformer::{Dtype, HypothesisId, Limits, SourceId, StepRow, Threads};
use std::sync::{Arc, Mutex, PoisonError};

/// An encoded source of one session.
#[pyclass(frozen, eq, hash, module = "simdformer._simdformer")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source(SourceId);

/// A hypothesis of one session.
#[pyclass(frozen, from_py_object, eq, hash, module = "simdformer._simdformer")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hypothesis(HypothesisId);

#[pymethods]
impl Source {
    /// The number of its slot, as in a trace.
    #[getter]
    fn slot(&self) -> u32 {
        self.0.slot()
    }

    fn __repr__(&self) -> String {
        format!("Source(slot={})", self.0.slot())
    }
}

#[pymethods]
impl Hypothesis {
    /// The number of its slot, as in a trace.
    #[getter]
    fn slot(&self) -> u32 {
        self.0.slot()
    }

    fn __repr__(&self) -> String {
        format!("Hypothesis(slot={})", self.0.slot())
    }
}

/// A copy of an intermediate tensor.
#[derive(Debug)]
struct Traced {
    stage: Stage,
    /// Stack, layer, block and head.
    place: (&'static str, Option<usize>, Option<&'static str>, Option<usize>),
    /// Slot of the source and of the hypothesis, position of the first row.
    at: (u32, Option<u32>, usize),
    rows: usize,
    columns: usize,
    data: Vec<f32>,
}

/// Copies the tensors of some stages.
#[derive(Debug)]
struct Copier {
    stages: Vec<Stage>,
    seen: Vec<Traced>,
}

impl Probe for Copier {
    fn wants(&self, stage: Stage) -> bool {
        self.stages.contains(&stage)
    }

    fn look(&mut self, view: &View<'_>) {
        let place = view.place;
        let block = place.block.map(|block| match block {
            simdformer::trace::Block::Own => "self-attention",
            simdformer::trace::Block::Cross => "cross-attention",
            simdformer::trace::Block::FeedForward => "feed-forward",
        });
        self.seen.push(Traced {
            stage: view.stage,
            place: (place.side.name(), place.layer, block, place.head),
            at: (view.sentence, view.hypothesis, view.position),
            rows: view.rows,
            columns: view.columns,
            data: view.iter().flatten().copied().collect(),
        });
    }
}

/// A session, and what its calls copy.
#[derive(Debug)]
struct State {
    session: simdformer::Session<'static>,
    probe: Option<Copier>,
}

/// The native half of `simdformer.Session`.
#[pyclass(frozen, module = "simdformer._simdformer")]
#[derive(Debug)]
pub(crate) struct Session {
    /// Empty while a call runs.
    state: Mutex<Option<Box<State>>>,
    workers: Workers,
    parameters: usize,
}

/// Stage, stack, layer, block, head, source, hypothesis, position, rows, columns, numbers.
type PyTraced<'py> = (
    (&'static str, &'static str, Option<usize>, Option<&'static str>, Option<usize>),
    (u32, Option<u32>, usize),
    (usize, usize, Bound<'py, PyArray1<f32>>),
);

impl Session {
    fn take(&self) -> Result<Box<State>, Failure> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).take();
        state.ok_or_else(|| {
            let message =
                "expected a session that no other thread uses, found one that is computing";
            Failure::new("BusyError", message)
        })
    }

    fn give_back(&self, state: Box<State>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }

    /// Runs `work` on the session, or on the traced session if a trace was begun.
    fn with_session<R: Send + 'static>(
        &self,
        py: Python<'_>,
        tokens: usize,
        work: impl FnOnce(&mut simdformer::Session<'_>) -> Result<R, simdformer::Error> + Send + 'static,
    ) -> PyResult<R> {
        let mut state = self.take()?;
        let call = Call::new(tokens, self.parameters, None);
        let ((state, result), seen) = self.workers.run_to_end(py, &call, move |cancel| {
            let State { session, probe } = &mut *state;
            session.set_cancel(cancel.clone());
            let result = match probe {
                None => work(session),
                Some(probe) => {
                    let mut scratch = vec![0.0; session.plan().trace_floats()];
                    session.traced(probe, &mut scratch).and_then(|mut traced| work(&mut traced))
                }
            };
            (state, result)
        })?;
        self.give_back(state);
        seen?;
        Ok(result.map_err(Failure::from)?)
    }

    /// Calls that only change tables.
    fn change<R>(
        &self,
        work: impl FnOnce(&mut simdformer::Session<'static>) -> Result<R, simdformer::Error>,
    ) -> PyResult<R> {
        let mut state = self.take()?;
        let result = work(&mut state.session);
        self.give_back(state);
        Ok(result.map_err(Failure::from)?)
    }
}

fn step_rows(hypotheses: &[Hypothesis], tokens: &[u32]) -> Result<Vec<StepRow<'static>>, Failure> {
    if hypotheses.len() != tokens.len() {
        let expected = format!("one token for each of {} hypotheses", hypotheses.len());
        return Err(Failure::input("tokens", expected, format!("{} tokens", tokens.len())));
    }
    let rows = hypotheses.iter().zip(tokens);
    Ok(rows.map(|(hypothesis, &token)| StepRow::new(hypothesis.0, token)).collect())
}

#[pymethods]
impl Session {
    /// `limits`: sentences, source tokens, target tokens, beams, batch tokens.
    #[new]
    fn new(
        py: Python<'_>,
        model: &Model,
        limits: (usize, usize, usize, usize, Option<usize>),
        cache: Option<&str>,
        threads: usize,
    ) -> PyResult<Self> {
        let (sentences, source_tokens, target_tokens, beams, batch_tokens) = limits;
        let cache = match cache {
            None => None,
            Some("f32") => Some(Dtype::F32),
            Some("f16") => Some(Dtype::F16),
            Some(found) => return Err(Failure::option("cache", "\"f32\" or \"f16\"", found).into()),
        };
        let mut limits =
            Limits { beams, cache, ..Limits::new(sentences, source_tokens, target_tokens) };
        limits.batch_tokens = batch_tokens.unwrap_or(limits.batch_tokens);
        let shared = Arc::clone(&model.loaded.model);
        let parameters = shared.bytes() / 4;
        let session = py.detach(move || simdformer::Session::new(shared, limits));
        let mut session = session.map_err(Failure::from)?;
        session.set_threads(if threads == 1 { Threads::Serial } else { Threads::Rayon });
        let state = Mutex::new(Some(Box::new(State { session, probe: None })));
        Ok(Self { state, workers: Workers::new(threads), parameters })
    }

    fn encode(&self, py: Python<'_>, rows: PyRows<'_>) -> PyResult<Vec<Source>> {
        let rows = Rows::new(&rows, "sources")?;
        self.with_session(py, rows.tokens(), move |session| {
            let sources: Vec<&[u32]> = rows.iter().collect();
            let mut ids = vec![SourceId::default(); sources.len()];
            session.encode(&sources, &mut ids)?;
            Ok(ids.into_iter().map(Source).collect())
        })
    }

    /// `[tokens * d_model]`.
    fn encoder_output<'py>(
        &self,
        py: Python<'py>,
        rows: PyRows<'py>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let rows = Rows::new(&rows, "sources")?;
        let output = self.with_session(py, rows.tokens(), move |session| {
            let sources: Vec<&[u32]> = rows.iter().collect();
            session.encoder_output(&sources).map(<[f32]>::to_vec)
        })?;
        Ok(output.into_pyarray(py))
    }

    fn start(&self, source: &Source) -> PyResult<Hypothesis> {
        self.change(|session| session.start(source.0)).map(Hypothesis)
    }

    /// `[rows * vocabulary]`.
    fn step<'py>(
        &self,
        py: Python<'py>,
        hypotheses: Vec<Hypothesis>,
        tokens: Vec<u32>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let rows = step_rows(&hypotheses, &tokens)?;
        let logits = self.with_session(py, rows.len(), move |session| {
            session.step(&rows).map(|logits| logits.to_vec())
        })?;
        Ok(logits.into_pyarray(py))
    }

    /// The best next token of each hypothesis.
    fn step_argmax<'py>(
        &self,
        py: Python<'py>,
        hypotheses: Vec<Hypothesis>,
        tokens: Vec<u32>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let rows = step_rows(&hypotheses, &tokens)?;
        let best = self.with_session(py, rows.len(), move |session| {
            session.step_argmax(&rows, &|_, _| false).map(|best| best.to_vec())
        })?;
        Ok(best.into_pyarray(py))
    }

    /// `[tokens * vocabulary]`, or nothing without `logits`.
    fn prefill<'py>(
        &self,
        py: Python<'py>,
        hypothesis: &Hypothesis,
        tokens: Vec<u32>,
        logits: bool,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let id = hypothesis.0;
        let found = self.with_session(py, tokens.len(), move |session| {
            let mut found = Vec::new();
            let mut each = |_: usize, row: &[f32]| found.extend_from_slice(row);
            session.prefill(id, &tokens, if logits { Some(&mut each) } else { None })?;
            Ok(found)
        })?;
        Ok(found.into_pyarray(py))
    }

    fn fork(&self, hypothesis: &Hypothesis) -> PyResult<Hypothesis> {
        self.change(|session| session.fork(hypothesis.0)).map(Hypothesis)
    }

    fn rewind(&self, hypothesis: &Hypothesis, length: usize) -> PyResult<()> {
        self.change(|session| session.rewind(hypothesis.0, length))
    }

    fn length(&self, hypothesis: &Hypothesis) -> PyResult<usize> {
        self.change(|session| session.hypothesis_len(hypothesis.0))
    }

    fn release(&self, hypothesis: &Hypothesis) -> PyResult<()> {
        self.change(|session| session.release(hypothesis.0))
    }

    fn release_source(&self, source: &Source) -> PyResult<()> {
        self.change(|session| session.release_sentence(source.0))
    }

    fn clear(&self) -> PyResult<()> {
        self.change(|session| {
            session.clear();
            Ok(())
        })
    }

    #[getter]
    fn free_sources(&self) -> PyResult<usize> {
        self.change(|session| Ok(session.free_sentences()))
    }

    /// Bytes and table of the plan.
    fn plan(&self) -> PyResult<(usize, String)> {
        self.change(|session| Ok((session.plan().bytes(), session.plan().to_string())))
    }

    /// Later calls copy the tensors of these stages, all if there is none.
    fn begin_trace(&self, stages: Vec<String>) -> PyResult<()> {
        let find = |name: &String| {
            Stage::from_name(name).ok_or_else(|| {
                let names: Vec<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
                Failure::option("stages", &format!("one of {}", names.join(", ")), name.as_str())
            })
        };
        let mut found = stages.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        if found.is_empty() {
            found = Stage::ALL.to_vec();
        }
        let mut state = self.take()?;
        state.probe = Some(Copier { stages: found, seen: Vec::new() });
        self.give_back(state);
        Ok(())
    }

    /// The copied tensors, in the order of computation; ends the trace if `last`.
    fn take_trace<'py>(&self, py: Python<'py>, last: bool) -> PyResult<Vec<PyTraced<'py>>> {
        let mut state = self.take()?;
        let seen = state.probe.as_mut().map(|probe| core::mem::take(&mut probe.seen));
        if last {
            state.probe = None;
        }
        self.give_back(state);
        let seen = seen.unwrap_or_default().into_iter().map(|one| {
            let (stack, layer, block, head) = one.place;
            let place = (one.stage.name(), stack, layer, block, head);
            (place, one.at, (one.rows, one.columns, one.data.into_pyarray(py)))
        });
        Ok(seen.collect())
    }
}

/// The names of the intermediate tensors, in the order of computation.
#[pyfunction]
pub(crate) fn stages() -> Vec<&'static str> {
    Stage::ALL.iter().map(|stage| stage.name()).collect()
}
