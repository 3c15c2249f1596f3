// SPDX-License-Identifier: GPL-2.0

//! Sets and reads the options in each state, over TCP and with each kind of socket, and notes what differs.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use anyhow::Context as _;
use anyhow::Result;

use super::effects;
use super::effects::Effect;
use super::options;
use super::options::Entry;
use super::probe;
use super::probe::Answer;
use super::states::State;
use super::states::STATES;
use crate::context::Context;
use crate::family::Family;

/// What was said otherwise than over TCP.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) option: &'static str,
    pub(super) family: Family,
    /// Where: a state, or an effect.
    pub(super) place: &'static str,
    pub(super) ip: IpAddr,
    pub(super) call: String,
    pub(super) tcp: String,
    pub(super) here: String,
}

/// What was compared, and what differs.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) compared: usize,
    pub(super) findings: Vec<Finding>,
    /// What options do over TCP.
    pub(super) effects: Vec<String>,
    /// What could not be done.
    pub(super) errors: Vec<String>,
}

/// The options that share a socket in a state, or an effect.
enum Work {
    Options(&'static State, Vec<&'static Entry>),
    Effect(&'static Effect),
}

struct Job {
    ip: IpAddr,
    work: Work,
}

/// How many jobs run in parallel: the effects mostly wait.
const AT_ONCE: usize = 8;

/// Does all jobs with sockets of these families, at both addresses.
pub(super) fn take(context: &Context, families: &[Family], ips: &[IpAddr], only: &str) -> Survey {
    let jobs: Vec<_> = ips.iter().flat_map(|ip| jobs(*ip, only)).collect();
    let next = Mutex::new(jobs.iter());
    let survey = Mutex::new(Survey::default());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| loop {
                let job = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(job) = job else {
                    break;
                };
                let context = Context {
                    addr: job.ip,
                    ..context.clone()
                };
                let part = job.take(&context, families);
                let mut survey = survey.lock().unwrap_or_else(PoisonError::into_inner);
                survey.add(part);
            });
        }
    });
    survey.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn jobs(ip: IpAddr, only: &str) -> Vec<Job> {
    let is_wanted = |name: &str| name.contains(only);
    let effects = effects::all().filter(|effect| is_wanted(effect.option));
    let mut work: Vec<_> = effects.map(Work::Effect).collect();
    for state in STATES {
        let entries = || options::all().filter(|entry| is_wanted(entry.name));
        let is_alone = |entry: &&Entry| entry.is_alone_at(ip) || state.is_for_each;
        let shared: Vec<_> = entries().filter(|entry| !is_alone(entry)).collect();
        work.push(Work::Options(state, shared));
        let alone = entries().filter(is_alone);
        work.extend(alone.map(|entry| Work::Options(state, vec![entry])));
    }
    work.into_iter().map(|work| Job { ip, work }).collect()
}

impl Survey {
    fn add(&mut self, other: Self) {
        self.compared += other.compared;
        self.findings.extend(other.findings);
        self.effects.extend(other.effects);
        self.errors.extend(other.errors);
    }
}

impl Job {
    fn place(&self) -> &'static str {
        match &self.work {
            Work::Options(state, _) => state.name,
            Work::Effect(effect) => effect.name,
        }
    }

    /// Compares each family with TCP.
    fn take(&self, context: &Context, families: &[Family]) -> Survey {
        let mut survey = Survey::default();
        let answers = |family| {
            let answers = self.answers(context, family);
            answers
                .with_context(|| format!("{}, {}, {}", self.place(), context.addr, family.name()))
        };
        let tcp = match answers(Family::Tcp) {
            Ok(tcp) => tcp,
            Err(error) => {
                survey.errors.push(format!("{error:#}"));
                return survey;
            }
        };
        if let (Work::Effect(effect), [seen]) = (&self.work, tcp.as_slice()) {
            let (option, name) = (effect.option, effect.name);
            let said = &seen.answer.said;
            survey.effects.push(format!("{option}, {name}: {said}"));
        }
        for family in families {
            match answers(*family) {
                Ok(here) => self.compare(&mut survey, *family, &tcp, here),
                Err(error) => survey.errors.push(format!("{error:#}")),
            }
        }
        survey
    }

    fn compare(&self, survey: &mut Survey, family: Family, tcp: &[Said], here: Vec<Said>) {
        survey.compared += here.len();
        // The first bytes of a value that differs say nothing new.
        let mut differs = "";
        for (tcp, here) in tcp.iter().zip(here) {
            if *tcp == here || here.answer.is_part() && differs == here.option {
                continue;
            }
            if here.answer.is_whole() {
                differs = here.option;
            }
            survey.findings.push(Finding {
                option: here.option,
                family,
                place: self.place(),
                ip: self.ip,
                call: here.answer.call,
                tcp: tcp.answer.said.clone(),
                here: here.answer.said,
            });
        }
    }

    /// Makes all calls with sockets of this family.
    fn answers(&self, context: &Context, family: Family) -> Result<Vec<Said>> {
        match &self.work {
            Work::Options(state, entries) => in_state(context, family, state, entries),
            Work::Effect(effect) => Ok(vec![Said {
                option: effect.option,
                answer: Answer {
                    call: "effect".into(),
                    said: effect.see(context, family)?,
                },
            }]),
        }
    }
}

/// The answer to a call for an option.
#[derive(PartialEq, Eq)]
struct Said {
    option: &'static str,
    answer: Answer,
}

/// All options on one socket: first each is read, so that what is set does not show in it, then each is set.
fn in_state(
    context: &Context,
    family: Family,
    state: &State,
    entries: &[&'static Entry],
) -> Result<Vec<Said>> {
    let scene = state.make(context, family, &|socket| {
        for entry in entries {
            probe::prepare(entry, socket);
        }
    });
    let scene = match (scene, entries) {
        // An option may be what keeps the socket from getting there: then that is the answer.
        (Err(error), [entry]) if state.is_prepared => {
            let (option, call) = (entry.name, "get there".into());
            let said = format!("{error:#}");
            let answer = Answer { call, said };
            return Ok(vec![Said { option, answer }]);
        }
        (scene, _) => scene?,
    };
    let mut all = Vec::new();
    let mut note = |entry: &Entry, answers: Vec<Answer>| {
        let option = entry.name;
        all.extend(answers.into_iter().map(|answer| Said { option, answer }));
    };
    if state.is_prepared {
        for entry in entries {
            note(entry, vec![probe::read(entry, &scene.subject)]);
        }
    } else {
        for entry in entries {
            note(entry, probe::read_all_ways(entry, &scene.subject));
        }
        for entry in entries {
            note(entry, probe::set(entry, &scene.subject));
        }
    }
    Ok(all)
}
