// SPDX-License-Identifier: GPL-2.0

//! `smc stats --listen`: serves the counters over HTTP, for Prometheus.
//!
//! A subset of HTTP/1.1 (RFC 9110, RFC 9112): one request per connection, `GET` or `HEAD` of
//! `/metrics`. Many or slow clients occupy at most [`AT_ONCE`] threads for [`PATIENCE`] each.
//!
//! No library is used: tiny_http limits neither the time nor the number of its clients; hyper can
//! limit both, but needs an asynchronous runtime, which would enlarge the program by a quarter to
//! save sixty lines.

use std::io;
use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use smc_tools::view::Module;

use crate::metrics;
use crate::out;
use crate::table::not_loaded;

/// Maximum of concurrent clients; the connections of others are closed.
const AT_ONCE: usize = 16;

/// Time limit for a client to send its request, and to receive the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum length of a request's head, bytes.
const HEAD_MAX: usize = 8 << 10;

static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Serves until the process is terminated.
pub(crate) fn serve(address: &str) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    let listener = TcpListener::bind(address).map_err(named)?;
    let address = listener.local_addr()?;
    out::error(format_args!("smc: serving http://{address}/metrics"));
    loop {
        match listener.accept() {
            Ok((client, _)) => take(client),
            // For example EMFILE, which may be temporary.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Counts one of the concurrent clients until it is dropped.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        // ORDERING: only the number itself is shared.
        let before = BUSY.fetch_add(1, Ordering::Relaxed);
        // If there are too many, dropped at once.
        Some(Self).filter(|_| before < AT_ONCE)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }
}

fn take(client: TcpStream) {
    let Some(place) = Place::take() else {
        return;
    };
    // If no thread can be created, the connection is closed, too.
    let _ = thread::Builder::new().spawn(move || {
        // Errors of a client are ignored.
        let _ = answer(client);
        drop(place);
    });
}

fn answer(mut client: TcpStream) -> io::Result<()> {
    let head = head(&mut client)?;
    let module = || Module::open().map_err(not_loaded);
    let page = || module().and_then(|mut module| metrics::text(&mut module));
    send(&mut client, &response(&head, page))?;
    client.shutdown(std::net::Shutdown::Write)
}

/// Reads up to the empty line that ends the head.
fn head(client: &mut impl Until) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        match client.read_until(end, &mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => head.extend(part.iter().take(len)),
        }
        if head.len() > HEAD_MAX {
            break;
        }
    }
    Ok(head)
}

/// Sends all of the answer.
fn send(client: &mut impl Until, mut answer: &[u8]) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !answer.is_empty() {
        let sent = client.write_until(end, answer)?;
        answer = answer.get(sent.max(1)..).unwrap_or_default();
    }
    Ok(())
}

/// A client that is read from and written to with a deadline.
trait Until {
    fn read_until(&mut self, end: Instant, buffer: &mut [u8]) -> io::Result<usize>;
    fn write_until(&mut self, end: Instant, bytes: &[u8]) -> io::Result<usize>;
}

impl Until for TcpStream {
    fn read_until(&mut self, end: Instant, buffer: &mut [u8]) -> io::Result<usize> {
        self.set_read_timeout(Some(left(end)?))?;
        self.read(buffer)
    }

    fn write_until(&mut self, end: Instant, bytes: &[u8]) -> io::Result<usize> {
        self.set_write_timeout(Some(left(end)?))?;
        self.write(bytes)
    }
}

/// Returns the time that is left until the deadline, which is not zero: that would be no timeout.
fn left(end: Instant) -> io::Result<Duration> {
    match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// Returns the response to a request; calls `page` if the request is valid.
fn response(head: &[u8], page: impl FnOnce() -> io::Result<String>) -> Vec<u8> {
    let head = String::from_utf8_lossy(head);
    let is_whole = head.contains("\r\n\r\n");
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    let path = path.map(|path| path.split('?').next().unwrap_or(path));
    let text = |text: &str| text.to_string();
    let (status, body) = match (method, path, version) {
        _ if !is_whole => ("431 Request Header Fields Too Large", text("too long\n")),
        (_, _, version) if !version.is_some_and(|v| v.starts_with("HTTP/1.")) => {
            ("400 Bad Request", text("this is no HTTP/1.1\n"))
        }
        (Some("GET" | "HEAD"), Some("/metrics"), _) => match page() {
            Ok(page) => ("200 OK", page),
            Err(error) => ("503 Service Unavailable", format!("{error}\n")),
        },
        (Some("GET" | "HEAD"), _, _) => ("404 Not Found", text("see /metrics\n")),
        _ => ("405 Method Not Allowed", text("GET and HEAD only\n")),
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n",
        body.len()
    );
    if status.starts_with("405") {
        answer.push_str("Allow: GET, HEAD\r\n");
    }
    answer.push_str("\r\n");
    if method != Some("HEAD") {
        answer.push_str(&body);
    }
    answer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(request: &str) -> String {
        let page = || Ok("smc 1\n".to_string());
        String::from_utf8(response(request.as_bytes(), page)).unwrap()
    }

    #[test]
    fn the_metrics_are_served_and_nothing_else() {
        let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Length: 6\r\n") && answer.ends_with("\r\n\r\nsmc 1\n"));
        let answer = ask("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert!(answer.contains("Content-Length: 6\r\n") && answer.ends_with("\r\n\r\n"));
        let status = |request: &str| ask(request)[9..12].to_string();
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status("GET /metrics\r\n\r\n"), "400");
        assert_eq!(status("\r\n\r\n"), "400");
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost"), "431");
    }

    #[test]
    fn a_module_that_went_is_said_and_not_hidden() {
        let gone = || Err(io::ErrorKind::NotFound.into());
        let answer = response(b"GET /metrics HTTP/1.1\r\n\r\n", gone);
        assert!(answer.starts_with(b"HTTP/1.1 503 "));
    }

    #[test]
    fn a_place_is_free_again_when_its_client_was_answered() {
        let mut places: Vec<_> = (0..AT_ONCE).map(|_| Place::take()).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(Place::take().is_none());
        assert!(Place::take().is_none());
        places.pop();
        assert!(Place::take().is_some());
    }

    /// Returns a few bytes at a time, then the end of the stream.
    struct Slow<'a>(&'a [u8]);

    impl Until for Slow<'_> {
        fn write_until(&mut self, _: Instant, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn read_until(&mut self, _: Instant, buffer: &mut [u8]) -> io::Result<usize> {
            let (now, later) = self.0.split_at(self.0.len().min(7));
            buffer[..now.len()].copy_from_slice(now);
            self.0 = later;
            Ok(now.len())
        }
    }

    #[test]
    fn a_head_may_come_in_pieces_but_not_without_end() {
        let whole = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(head(&mut Slow(whole)).unwrap(), whole);
        assert!(head(&mut Slow(b"GET /metrics")).is_err());
        let endless = head(&mut Slow(&[b'x'; 10_000])).unwrap();
        assert!(endless.len() < 10_000);
    }

    #[test]
    fn an_answer_may_be_taken_in_pieces_but_not_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut client = listener.accept().unwrap().0;
        // More than both buffers hold, and a reader that takes a little of it, all the time.
        let answer = vec![b'x'; 64 << 20];
        thread::spawn(move || {
            let mut some = vec![0; 64 << 10];
            while reader.read(&mut some).is_ok_and(|len| len > 0) {
                thread::sleep(Duration::from_millis(100));
            }
        });
        let start = Instant::now();
        let error = send(&mut client, &answer).unwrap_err();
        assert!(matches!(
            error.kind(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
        ));
        assert!((PATIENCE..2 * PATIENCE).contains(&start.elapsed()));
    }
}
