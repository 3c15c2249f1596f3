// SPDX-License-Identifier: GPL-2.0

//! What the two ends of a test connection say to each other. It works over SMC and over TCP alike:
//!
//! | client | server |
//! | --- | --- |
//! | [`MAGIC`], how many bytes (u64, big endian) | |
//! | | [`ANSWER`] |
//! | the bytes | |
//! | | as many bytes |
//! | [`ROUNDS`] times a byte | each back |
//! | its [`End`]: length (u32, big endian), JSON | its [`End`] |

use std::io;
use std::io::Read;
use std::io::Write;
use std::time::Duration;
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::Deserialize;
use serde::Serialize;

/// What a client says first, and what the server answers, so that one that sends back what comes is noticed.
const MAGIC: &[u8; 16] = b"smc check test 1";
const ANSWER: &[u8; 16] = b"smc check here 1";

/// Bytes that are made and compared at a time.
const PIECE: usize = 64 * 1024;

/// The most bytes that a server takes part in, in each direction.
pub(super) const MOST: u64 = 1 << 30;

/// Round trips of a byte.
const ROUNDS: usize = 100;

/// The largest description of an end, bytes.
const MOST_SAID: u32 = 64 * 1024;

/// Seeds of what each end sends.
const FROM_CLIENT: u64 = 0x5eed_0001;
const FROM_SERVER: u64 = 0x5eed_0002;

/// How one end sees the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// Whether its data go over SMC; `None` if it cannot tell.
    pub(super) smc: Option<bool>,
    /// The id of `smc why`.
    pub(super) id: String,
    pub(super) sentence: String,
    pub(super) remedy: Option<String>,
    /// The name of the host.
    pub(super) host: String,
    /// The MTU of the network device that the connection uses.
    pub(super) mtu: Option<u32>,
    /// The offset of the first byte that was wrong.
    pub(super) wrong_at: Option<u64>,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Times {
    /// Bytes in each direction.
    pub(super) bytes: u64,
    /// From when the server was ready until the first byte of its data came, microseconds: it sends none before it
    /// has the last of the client's.
    pub(super) there_us: u64,
    /// From then until the last byte came, microseconds.
    pub(super) back_us: u64,
    /// The median of the round trips of a byte, microseconds.
    pub(super) round_trip_us: u64,
}

/// Why there was no exchange.
#[derive(Debug)]
pub(super) enum Failure {
    /// The other end is not this program.
    Stranger,
    /// Nothing came from it.
    Silent,
    /// The connection ended, or nothing came.
    Broken(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Bytes that are the same at both ends, and the same nowhere twice (xorshift64*).
struct Pattern(u64);

impl Pattern {
    fn fill(&mut self, piece: &mut [u8]) {
        for word in piece.chunks_mut(8) {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let bytes = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
    }
}

fn send_bytes(to: &mut impl Write, seed: u64, bytes: u64) -> io::Result<()> {
    let (mut pattern, mut left, mut piece) = (Pattern(seed), bytes, vec![0; PIECE]);
    while left > 0 {
        // CAST: at most as long as a piece.
        let len = left.min(PIECE as u64) as usize;
        pattern.fill(&mut piece[..len]);
        to.write_all(&piece[..len])?;
        left -= len as u64;
    }
    Ok(())
}

/// Returns the offset of the first byte that is wrong.
fn compare_bytes(from: &mut impl Read, seed: u64, bytes: u64) -> io::Result<Option<u64>> {
    let (mut pattern, mut at, mut wrong_at) = (Pattern(seed), 0, None);
    let (mut wanted, mut piece) = (vec![0; PIECE], vec![0; PIECE]);
    while at < bytes {
        // CAST: at most as long as a piece.
        let len = (bytes - at).min(PIECE as u64) as usize;
        pattern.fill(&mut wanted[..len]);
        from.read_exact(&mut piece[..len])?;
        let wrong = piece[..len]
            .iter()
            .zip(&wanted[..len])
            .position(|(is, wanted)| is != wanted);
        wrong_at = wrong_at.or(wrong.map(|wrong| at + wrong as u64));
        at += len as u64;
    }
    Ok(wrong_at)
}

fn say(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(what)?;
    let len = u32::try_from(text.len()).map_err(io::Error::other)?;
    to.write_all(&[&len.to_be_bytes(), text.as_slice()].concat())
}

fn hear<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len);
    if len > MOST_SAID {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // CAST: it is small.
    let mut text = vec![0; len as usize];
    from.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// The client's part: returns what it measured and how the server sees the connection. `end` is asked after the data,
/// when the connection may have changed.
pub(super) fn lead(
    stream: &mut (impl Read + Write),
    bytes: u64,
    end: impl FnOnce() -> End,
) -> Result<(Times, Option<u64>, End), Failure> {
    // A peer that is not this program may close at once.
    let stranger = |_| Failure::Stranger;
    stream
        .write_all(&[MAGIC.as_slice(), &bytes.to_be_bytes()].concat())
        .map_err(stranger)?;
    let mut answer = [0; ANSWER.len()];
    match stream.read_exact(&mut answer) {
        Ok(()) if answer == *ANSWER => {}
        Err(error) if is_timeout(&error) => return Err(Failure::Silent),
        _ => return Err(Failure::Stranger),
    }
    // Not before: the server looks around before it answers.
    let begin = Instant::now();
    send_bytes(stream, FROM_CLIENT, bytes)?;
    // They are in the buffers of both ends now.
    let mut first = vec![0; usize::from(bytes > 0)];
    stream.read_exact(&mut first)?;
    let there = begin.elapsed();
    let mut data = first.as_slice().chain(&mut *stream);
    let wrong_at = compare_bytes(&mut data, FROM_SERVER, bytes)?;
    let back = begin.elapsed() - there;
    let mut rounds = Vec::with_capacity(ROUNDS);
    let mut byte = [0; 1];
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        rounds.push(begin.elapsed());
    }
    rounds.sort_unstable();
    let mut own = end();
    own.wrong_at = wrong_at;
    say(stream, &own)?;
    let peer = hear::<End>(stream)?.without_controls();
    let times = Times {
        bytes,
        there_us: micros(there),
        back_us: micros(back),
        round_trip_us: micros(rounds[ROUNDS / 2]),
    };
    Ok((times, wrong_at, peer))
}

/// The server's part: returns how the client sees the connection.
pub(super) fn follow(
    stream: &mut (impl Read + Write),
    end: impl FnOnce() -> End,
) -> Result<(Option<u64>, End), Failure> {
    let (mut magic, mut bytes) = ([0; MAGIC.len()], [0; 8]);
    stream
        .read_exact(&mut magic)
        .map_err(|_| Failure::Stranger)?;
    stream.read_exact(&mut bytes)?;
    let bytes = u64::from_be_bytes(bytes);
    if magic != *MAGIC || bytes > MOST {
        return Err(Failure::Stranger);
    }
    stream.write_all(ANSWER)?;
    let wrong_at = compare_bytes(stream, FROM_CLIENT, bytes)?;
    send_bytes(stream, FROM_SERVER, bytes)?;
    let mut byte = [0; 1];
    for _ in 0..ROUNDS {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
    let mut own = end();
    own.wrong_at = wrong_at;
    say(stream, &own)?;
    Ok((wrong_at, hear::<End>(stream)?.without_controls()))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Describes what broke a connection.
pub(super) fn in_words(error: &io::Error) -> String {
    match is_timeout(error) {
        true => "nothing came or went for half a minute".to_string(),
        false => error.to_string(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl End {
    /// Without what would steer a terminal: the other end says this.
    fn without_controls(mut self) -> Self {
        for text in [&mut self.id, &mut self.sentence, &mut self.host] {
            text.retain(|c| !c.is_control());
        }
        if let Some(remedy) = &mut self.remedy {
            remedy.retain(|c| !c.is_control());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn end(host: &str) -> End {
        End {
            host: host.to_string(),
            id: "SMC".to_string(),
            ..End::default()
        }
    }

    #[test]
    fn both_ends_hear_of_each_other() {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || follow(&mut server, || end("b\x1b[2J")).unwrap());
        let (times, wrong_at, peer) = lead(&mut client, 200_001, || end("a")).unwrap();
        assert_eq!((times.bytes, wrong_at), (200_001, None));
        assert_eq!((peer.host.as_str(), peer.wrong_at), ("b[2J", None));
        let (wrong_at, peer) = serving.join().unwrap();
        assert_eq!((wrong_at, peer.host.as_str()), (None, "a"));
    }

    #[test]
    fn time_goes_from_when_the_server_is_ready_until_it_has_the_data() {
        const LOOK: Duration = Duration::from_millis(1000);
        const READ: Duration = Duration::from_millis(200);
        // A server that looks around, and is slow to read what lies in the buffers by then.
        struct Slow(UnixStream, bool);
        impl Read for Slow {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::take(&mut self.1) {
                    thread::sleep(READ);
                }
                self.0.read(buffer)
            }
        }
        impl Write for Slow {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                if data == ANSWER {
                    thread::sleep(LOOK);
                    self.1 = true;
                }
                self.0.write(data)
            }
            fn flush(&mut self) -> io::Result<()> {
                self.0.flush()
            }
        }
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut server = Slow(server, false);
        let serving = thread::spawn(move || follow(&mut server, || end("b")).map(drop).unwrap());
        let (times, ..) = lead(&mut client, 1000, || end("a")).unwrap();
        serving.join().unwrap();
        let there = Duration::from_micros(times.there_us);
        // The server may have begun to read before the client looks at its clock.
        assert!((READ / 2..LOOK).contains(&there), "{there:?}");
    }

    #[test]
    fn a_wrong_byte_is_found_where_it_is() {
        let mut sent = Vec::new();
        send_bytes(&mut sent, FROM_CLIENT, 150_000).unwrap();
        assert_eq!(
            compare_bytes(&mut sent.as_slice(), FROM_CLIENT, 150_000).unwrap(),
            None
        );
        sent[140_003] ^= 1;
        sent[140_009] ^= 1;
        let found = compare_bytes(&mut sent.as_slice(), FROM_CLIENT, 150_000).unwrap();
        assert_eq!(found, Some(140_003));
        let short = compare_bytes(&mut sent[..99].as_ref(), FROM_CLIENT, 100);
        assert_eq!(short.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn somebody_else_is_noticed_at_either_end() {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || {
            let mut first = [0; 24];
            server.read_exact(&mut first).unwrap();
            server.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
        });
        let led = lead(&mut client, 1, || end("a"));
        assert!(matches!(led, Err(Failure::Stranger)), "{led:?}");
        serving.join().unwrap();

        let (mut client, mut server) = UnixStream::pair().unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            .unwrap();
        let followed = follow(&mut server, || end("b"));
        assert!(matches!(followed, Err(Failure::Stranger)), "{followed:?}");
    }

    #[test]
    fn one_that_says_nothing_is_told_from_a_stranger() {
        let (mut client, _server) = UnixStream::pair().unwrap();
        client
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let led = lead(&mut client, 1, || end("a"));
        assert!(matches!(led, Err(Failure::Silent)), "{led:?}");
    }

    #[test]
    fn a_description_without_end_is_refused() {
        let mut said: &[u8] = &[0xff; 8];
        let heard = hear::<End>(&mut said);
        assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
