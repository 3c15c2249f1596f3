// SPDX-License-Identifier: GPL-2.0

//! The terminal: an alternate screen for lines of text, and keys.
//!
//! Uses crossterm. ratatui would save forty lines for as many crates, and would assume a size of
//! zero for terminals that do not report it, such as serial consoles.

use std::io;
use std::io::Write;
use std::time::Duration;
use std::time::Instant;

use crossterm::cursor;
use crossterm::event;
use crossterm::event::Event;
use crossterm::event::KeyCode;
use crossterm::event::KeyModifiers;
use crossterm::execute;
use crossterm::queue;
use crossterm::style::Print;
use crossterm::terminal;
use crossterm::terminal::Clear;
use crossterm::terminal::ClearType;
use smc_user::stopped;

/// Interval between checks for signals, which the wait for a key does not tell of.
const PAUSE: Duration = Duration::from_millis(200);

/// The terminal in raw mode with the alternate screen; restored on drop.
pub(super) struct Screen(());

impl Screen {
    /// Switches to raw mode and the alternate screen.
    pub(super) fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        // From here on, drop restores the mode after an error.
        let screen = Self(());
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// Draws as many lines as fit.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let (columns, rows) = match terminal::size()? {
            // Size unknown.
            (0, _) | (_, 0) => (80, 24),
            size => size,
        };
        let mut out = io::stdout().lock();
        for (row, line) in (0..rows).zip(lines) {
            let line: String = line.chars().take(columns.into()).collect();
            let clear = Clear(ClearType::UntilNewLine);
            queue!(out, cursor::MoveTo(0, row), Print(line), clear)?;
        }
        let used = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        if used < rows {
            queue!(
                out,
                cursor::MoveTo(0, used),
                Clear(ClearType::FromCursorDown)
            )?;
        }
        out.flush()
    }

    /// Waits for `wait`; returns `true` at once if the user ends the program, or soon after a signal.
    pub(super) fn is_quit_within(&mut self, wait: Duration) -> io::Result<bool> {
        let end = Instant::now() + wait;
        while !stopped() {
            let left = end.saturating_duration_since(Instant::now());
            if !event::poll(left.min(PAUSE))? {
                if left <= PAUSE {
                    return Ok(false);
                }
                continue;
            }
            if let Event::Key(key) = event::read()? {
                let is_control_c =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(true);
                }
            }
        }
        Ok(true)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Fails only if the terminal is gone.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
