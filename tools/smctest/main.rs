// SPDX-License-Identifier: GPL-2.0

//! `smctest`: tests of SMC sockets, run inside a guest.
//!
//! Every subcommand takes the address family to test, so that the same test runs against our
//! module, the C module and TCP: a test that passes with TCP and fails with a module is a bug of
//! the module. A test with both ends in one process opens each end in its own network namespace,
//! since a socket belongs to the namespace of the thread that opened it.

#![forbid(unsafe_code)]
#![expect(
    clippy::incompatible_msrv,
    reason = "it is built where the tests run, not where packages are"
)]

mod acceptors;
mod admin;
mod apart;
mod blocked_listener;
mod bulk;
mod bursts;
mod charged;
mod churn;
mod closed_client;
mod closed_listener;
mod connrate;
mod context;
mod crowd;
mod data;
mod destroyed;
mod ending;
mod endings;
mod event_loop;
mod fabric;
mod failing;
mod failover;
mod family;
mod flood;
mod flooded;
mod full_backlog;
mod gather;
mod greet;
mod half_set;
mod handover;
mod hold;
mod idle;
mod integrity;
mod job;
mod killed;
mod ktap;
mod leaving;
mod left;
mod many;
mod mesh;
mod mixed;
mod netns;
mod path;
mod pingpong;
mod powerloss;
mod rawclc;
mod refusing;
mod reset;
mod resize;
mod sameness;
mod semantics;
mod server;
mod stuck;
mod stuck_senders;
mod unread;
mod urgent;
mod watch;
mod watchdog;

use std::process::ExitCode;

use clap::Parser;
use clap::Subcommand;

#[derive(Parser)]
#[command(about)]
struct Arguments {
    #[command(flatten)]
    context: context::Context,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the other subcommands from another machine, until killed
    Serve,
    /// Check every socket call against its expected answer; prints KTAP
    Semantics(semantics::Arguments),
    /// Compare with TCP what sockets say after every end of a connection; prints KTAP
    Endings(endings::Arguments),
    /// Check every socket call in every form against TCP's answer in the same run; prints KTAP
    Forms(semantics::forms::Arguments),
    /// Compare every socket option with TCP's, in every state; prints KTAP
    Sameness(sameness::Arguments),
    /// Send random data both ways at once and check it
    Integrity(integrity::Arguments),
    /// Hold many connections at once, all of them busy
    Many(many::Arguments),
    /// Send on many connections at once, then wait for all answers
    Bursts(bursts::Arguments),
    /// Wait in accept(2) in several tasks; prints KTAP
    Acceptors,
    /// Close clients about when connect(2) ends
    ClosedClient(closed_client::Arguments),
    /// Close listeners about when handshakes end
    ClosedListener(closed_listener::Arguments),
    /// Open and close connections in several processes
    Churn(churn::Arguments),
    /// Destroy one end of many connections administratively
    Destroyed(destroyed::Arguments),
    /// Let allocations fail
    Failing(failing::Arguments),
    /// Transfer in both directions while links fail
    Failover(failover::Arguments),
    /// Kill one side in the middle of a transfer
    Killed(killed::Arguments),
    /// Urgent data, half closes and aborts against a server elsewhere (`smctest serve`)
    Apart(apart::Arguments),
    /// Close a listener while a call on another one blocks on a page fault
    BlockedListener,
    /// Peek at an urgent byte while SO_OOBINLINE is being set
    HalfSet,
    /// Remove a device while calls block on a page fault
    Stuck(stuck::Arguments),
    /// Send from a page that is missing as soon as a connection can be sent on
    StuckSenders(stuck_senders::Arguments),
    /// Run a command that may open no sockets of a family
    Refusing(refusing::Arguments),
    /// Connections between many network namespaces
    Mesh(mesh::Arguments),
    /// Small messages one way, and what may be under way (SMC-D)
    Gather,
    /// Reset the TCP connection in the middle of a transfer
    Reset,
    /// See RMBEs grow with use and shrink when idle; prints KTAP
    Resize(resize::Arguments),
    /// Send malformed handshake messages to the kernel
    Rawclc(rawclc::Arguments),
    /// Be a server that accepts the SMC option and refuses the handshake
    Refuse(rawclc::refuse::Arguments),
    /// Make first contacts under many identities and leave their link groups behind
    Strangers(rawclc::strangers::Arguments),
    /// Occupy all handshakes of a namespace's listeners with silent peers
    Crowded(rawclc::crowded::Arguments),
    /// Be a peer over RDMA that lies, by scripts from seeds; prints KTAP
    Hostile(rawclc::hostile::Arguments),
    /// Measure the time of a round trip
    Pingpong(pingpong::Arguments),
    /// Hold connections to a machine that loses power; each has to end with an error
    Powerloss(powerloss::Arguments),
    /// Measure connections per second
    Connrate(connrate::Arguments),
    /// Compare every byte of connections up to the end, and time them
    Greet(greet::Arguments),
    /// Measure what many connections carry together
    Flood(flood::Arguments),
    /// Connect by TCP and by SMC to one listener, in every way to wait for them; prints KTAP
    Mixed,
    /// Close listeners while connections come to one without end; prints KTAP
    Flooded,
    /// Connect to a listener whose queue is full
    FullBacklog(full_backlog::Arguments),
    /// Measure kernel memory per idle connection
    Idle(idle::Arguments),
    /// Check that buffers count as memory of their sockets
    Charged(charged::Arguments),
    /// Drop or modify a CONFIRM in transit, and check the owner of the RMBE; prints KTAP
    Handover,
    /// Hold idle connections and check whether they end
    Hold(hold::Arguments),
    /// Close with data that the peer does not read
    Left(left::Arguments),
    /// Close many connections whose other end never closes
    Crowd(crowd::Arguments),
    /// Send and end the connection, or read slowly
    Leaving(leaving::Arguments),
    /// Read data that has arrived after the connection has failed
    Unread(unread::Arguments),
    /// Print what netlink and sock_diag answer, to be compared between modules
    #[command(subcommand)]
    Admin(admin::Command),
    /// Connect once and print whether SMC or TCP is used
    Path,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let context = &arguments.context;
    watchdog::start(context.deadline());

    let result = match &arguments.command {
        Command::Serve => server::serve(context),
        Command::Semantics(options) => semantics::run(context, options),
        Command::Endings(options) => endings::run(context, options),
        Command::Forms(options) => semantics::forms::run(context, options),
        Command::Sameness(options) => sameness::run(context, options),
        Command::Integrity(options) => integrity::run(context, options),
        Command::Many(options) => many::run(context, options),
        Command::Bursts(options) => bursts::run(context, options),
        Command::Acceptors => acceptors::run(context),
        Command::ClosedClient(options) => closed_client::run(context, options),
        Command::ClosedListener(options) => closed_listener::run(context, options),
        Command::Churn(options) => churn::run(context, options),
        Command::Destroyed(options) => destroyed::run(context, options),
        Command::Failing(options) => failing::run(context, options),
        Command::Failover(options) => failover::run(context, options),
        Command::Killed(options) => killed::run(context, options),
        Command::Apart(options) => apart::run(context, options),
        Command::BlockedListener => blocked_listener::run(context),
        Command::HalfSet => half_set::run(context),
        Command::Stuck(options) => stuck::run(context, options),
        Command::StuckSenders(options) => stuck_senders::run(context, options),
        Command::Refusing(options) => refusing::run(options),
        Command::Gather => gather::run(context),
        Command::Mesh(arguments) => mesh::run(context, arguments),
        Command::Reset => reset::run(context),
        Command::Resize(options) => resize::run(context, options),
        Command::Rawclc(options) => rawclc::run(context, options),
        Command::Refuse(options) => rawclc::refuse::run(context, options),
        Command::Strangers(options) => rawclc::strangers::run(context, options),
        Command::Crowded(options) => rawclc::crowded::run(context, options),
        Command::Hostile(options) => rawclc::hostile::run(context, options),
        Command::Pingpong(options) => pingpong::run(context, options),
        Command::Powerloss(options) => powerloss::run(context, options),
        Command::Connrate(options) => connrate::run(context, options),
        Command::Greet(options) => greet::run(context, options),
        Command::Flood(options) => flood::run(context, options),
        Command::Mixed => mixed::run(context),
        Command::Flooded => flooded::run(context),
        Command::FullBacklog(options) => full_backlog::run(context, options),
        Command::Idle(options) => idle::run(context, options),
        Command::Charged(options) => charged::run(context, options),
        Command::Handover => handover::run(context),
        Command::Hold(options) => hold::run(context, options),
        Command::Left(options) => left::run(context, options),
        Command::Crowd(options) => crowd::run(context, options),
        Command::Leaving(options) => leaving::run(context, options),
        Command::Unread(options) => unread::run(context, options),
        Command::Admin(command) => admin::run(context, command),
        Command::Path => path::run(context),
    };

    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("# {error:#}");
            data::exit_code()
        }
    }
}
