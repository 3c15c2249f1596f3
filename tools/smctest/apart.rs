// SPDX-License-Identifier: GPL-2.0

//! `smctest apart`: tests that need a server in another machine which records results: urgent data,
//! keep-alive on idle connections, half-close, resets and killed processes.

use std::env;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use clap::ValueEnum;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Random;
use crate::data::Stream;
use crate::ending::Ending;
use crate::ending::NOTICE;
use crate::job::Job;
use crate::ktap::Ktap;
use crate::server::HALF_LEN as LEN;
use crate::urgent;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the tests whose names contain this
    #[arg(long, default_value = "")]
    only: String,

    /// Instead of the tests: receive until the caller has killed the server
    #[arg(long)]
    server_dies: bool,

    /// Be the process that is killed, on the connection with this id
    #[arg(long, hide = true)]
    victim: Option<Task>,

    #[arg(long, hide = true, default_value_t = 0)]
    id: u64,
}

/// What a client does when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Task {
    Send,
    Receive,
    Idle,
}

/// How long a connection stays idle: several times the shortest keep-alive interval.
const REST: Duration = Duration::from_secs(4);

type Test = fn(&Context) -> Result<()>;

const TESTS: &[(&str, Test)] = &[
    ("rest: a connection works after one", rests),
    ("urgent: a byte each way", urgent_bytes),
    ("urgent: bytes behind one that nobody reads", urgent_unread),
    ("half close: the client's half ends first", client_half),
    ("half close: the server's half ends first", server_half),
    // Between two kernels with our module, as over TCP. The C module reports a reset as the end of the stream, and ends
    // a connection in order where it should reset it.
    ("reset: a client with no linger time", |context| {
        client_resets(context, Ending::is_reset)
    }),
    ("reset: a server with no linger time", |context| {
        server_resets(context, Ending::is_reset)
    }),
    ("reset: a client that leaves data unread", |context| {
        client_leaves_data(context, Ending::is_reset)
    }),
    (
        "reset: a server that is shut both ways, by data",
        sends_to_shut,
    ),
    ("reset: a client killed while it receives", |context| {
        killed(context, Task::Receive, Ending::is_failed_write)
    }),
    ("reset: no client killed while it sends", |context| {
        killed(context, Task::Send, Ending::is_end)
    }),
    ("reset: no client killed while it idles", |context| {
        killed(context, Task::Idle, Ending::is_end)
    }),
    ("abort: a client with no linger time", |context| {
        client_resets(context, Ending::is_loss)
    }),
    ("abort: a client that leaves data unread", |context| {
        client_leaves_data(context, Ending::is_loss)
    }),
    ("abort: a server with no linger time", |context| {
        server_resets(context, Ending::is_loss)
    }),
    ("abort: a client killed while it sends", |context| {
        killed(context, Task::Send, Ending::is_loss)
    }),
    ("abort: a client killed while it receives", |context| {
        killed(context, Task::Receive, Ending::is_loss)
    }),
    ("abort: a client killed while it idles", |context| {
        killed(context, Task::Idle, Ending::is_loss)
    }),
];

/// Runs the tests against the server at the context's address; prints KTAP.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if let Some(task) = arguments.victim {
        return be_killed(context, task, arguments.id);
    }
    if arguments.server_dies {
        return outlive_server(context);
    }
    let tests: Vec<_> = TESTS
        .iter()
        .filter(|(name, _)| name.contains(&arguments.only))
        .collect();
    ensure!(!tests.is_empty(), "no test is called {}", arguments.only);

    let mut ktap = Ktap::start(tests.len());
    for (name, test) in tests {
        ktap.result(name, test(context).map_err(|error| format!("{error:#}")));
    }
    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

/// Connects, and requests `job` from the server.
fn begin(context: &Context, job: Job) -> Result<Socket> {
    let socket = context.connect()?;
    socket.set_timeout(NOTICE)?;
    job.send(&socket)?;
    Ok(socket)
}

/// Asks the server how connection `id` ended for it.
fn ask(context: &Context, id: u64) -> Result<Ending> {
    let ending = Ending::receive(&begin(context, Job::Ask(id))?)?;
    println!("# for the server it was {ending}");
    Ok(ending)
}

/// Returns the id of a connection, which is also the seed, and random data.
fn sample() -> (u64, Vec<u8>) {
    let seed = Random::fresh_seed();
    let mut data = vec![0; LEN];
    Stream::new(seed).fill(&mut data);
    (seed, data)
}

fn urgent_bytes(context: &Context) -> Result<()> {
    urgent::run_client(&begin(context, Job::Urgent)?)
}

/// A reader of normal data skips the urgent byte, and receives the data after it.
fn urgent_unread(context: &Context) -> Result<()> {
    let socket = begin(context, Job::Count)?;
    socket.send(b"abc", libc::MSG_OOB).context("urgent send")?;
    socket.send(b"defgh", 0).context("the send behind it")?;
    socket.shutdown(libc::SHUT_WR)?;
    let counted = Ending::receive(&socket)?;
    ensure!(
        counted == Ending::of(b"abdefgh"),
        "the server saw {counted}"
    );
    Ok(())
}

fn rests(context: &Context) -> Result<()> {
    let (_, data) = sample();
    let socket = begin(context, Job::Echo(data.len() as u64))?;
    std::thread::sleep(REST);
    let mut stream = &socket;
    stream.write_all(&data)?;
    let mut echo = vec![0; data.len()];
    stream.read_exact(&mut echo)?;
    ensure!(echo == data, "the echo differs");
    Ok(())
}

fn client_half(context: &Context) -> Result<()> {
    let (_, data) = sample();
    let socket = begin(context, Job::Count)?;
    let mut stream = &socket;
    stream.write_all(&data)?;
    socket.shutdown(libc::SHUT_WR)?;
    let counted = Ending::receive(&socket).context("after the end of one's own half")?;
    ensure!(counted == Ending::of(&data), "the server saw {counted}");
    ensure!(stream.read(&mut [0])? == 0, "data after the end");
    Ok(())
}

fn server_half(context: &Context) -> Result<()> {
    let (id, data) = sample();
    let socket = begin(context, Job::Half(id))?;
    let mut theirs = vec![0; LEN];
    Stream::new(!id).fill(&mut theirs);
    let read = Ending::of_reading(&socket);
    ensure!(read == Ending::of(&theirs), "the client saw {read}");
    let mut stream = &socket;
    stream
        .write_all(&data)
        .context("after the end of the server's half")?;
    drop(socket);
    let seen = ask(context, id)?;
    ensure!(seen == Ending::of(&data), "the server saw {seen}");
    Ok(())
}

fn client_resets(context: &Context, is_meant: fn(&Ending) -> bool) -> Result<()> {
    let (id, data) = sample();
    let socket = begin(context, Job::Watch(id))?;
    let mut stream = &socket;
    stream.write_all(&data)?;
    socket.set_linger(true, 0)?;
    drop(socket);
    let seen = ask(context, id)?;
    ensure!(is_meant(&seen), "the server saw {seen}");
    Ok(())
}

fn client_leaves_data(context: &Context, is_meant: fn(&Ending) -> bool) -> Result<()> {
    let (id, _) = sample();
    let socket = begin(context, Job::Feed(id))?;
    let mut stream = &socket;
    stream.read_exact(&mut [0; 100])?;
    drop(socket);
    let seen = ask(context, id)?;
    ensure!(is_meant(&seen) && seen.len > 0, "the server saw {seen}");
    Ok(())
}

fn server_resets(context: &Context, is_meant: fn(&Ending) -> bool) -> Result<()> {
    let socket = begin(context, Job::Reset)?;
    let read = Ending::of_reading(&socket);
    ensure!(is_meant(&read), "the reader saw {read}");
    let written = Ending::of_writing(&socket);
    ensure!(written.is_loss(), "the writer saw {written}");
    Ok(())
}

/// Data for an end that has shut down both directions reset it, as over TCP.
fn sends_to_shut(context: &Context) -> Result<()> {
    let (id, _) = sample();
    let socket = begin(context, Job::Shut(id))?;
    let read = Ending::of_reading(&socket);
    ensure!(read.is_end(), "the reader saw {read}");
    let written = Ending::of_writing(&socket);
    ensure!(written.is_failed_write(), "the writer saw {written}");
    let seen = ask(context, id)?;
    ensure!(seen.is_reset(), "the server saw {seen}");
    Ok(())
}

/// Receives until the end of the stream, then sends until that fails: the server was killed.
fn loses_server(socket: &Socket) -> Result<()> {
    let read = Ending::of_reading(socket);
    ensure!(read.is_loss(), "the reader saw {read}");
    let written = Ending::of_writing(socket);
    println!("# the reader saw {read}, the writer {written}");
    ensure!(written.is_loss(), "the writer saw {written}");
    Ok(())
}

/// Prints `ready` once data arrives, whereupon the caller kills the server.
fn outlive_server(context: &Context) -> Result<()> {
    let socket = begin(context, Job::Feed(0))?;
    let mut stream = &socket;
    stream.read_exact(&mut vec![0; LEN])?;
    println!("ready");
    loses_server(&socket)
}

/// A child process that is killed when this value is dropped.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn killed(context: &Context, task: Task, is_meant: fn(&Ending) -> bool) -> Result<()> {
    let (id, _) = sample();
    let name = task.to_possible_value().context("no name")?;
    let child = Command::new(env::current_exe()?)
        .args(context.to_options())
        .args(["apart", "--victim", name.get_name()])
        .arg(format!("--id={id}"))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut victim = Victim(child);
    let output = victim.0.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line == "ready\n", "the process to be killed: {line}");
    drop(victim);
    let seen = ask(context, id)?;
    ensure!(is_meant(&seen), "the server saw {seen}");
    Ok(())
}

fn be_killed(context: &Context, task: Task, id: u64) -> Result<()> {
    let job = match task {
        Task::Send | Task::Idle => Job::Watch(id),
        Task::Receive => Job::Feed(id),
    };
    let socket = begin(context, job)?;
    let mut stream = &socket;
    let mut buffer = vec![0; LEN];
    let mut is_ready = false;
    loop {
        match task {
            Task::Send => stream.write_all(&buffer)?,
            Task::Receive => stream.read_exact(&mut buffer)?,
            Task::Idle => {}
        }
        if !is_ready {
            println!("ready");
            is_ready = true;
        }
        if task == Task::Idle {
            std::thread::sleep(NOTICE);
        }
    }
}
