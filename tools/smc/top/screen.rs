// SPDX-License-Identifier: GPL-2.0

//! The terminal: a screen of its own for lines of text, and the keys.
//!
//! crossterm does the work. ratatui above it would save forty lines for as many crates, and takes a terminal
//! that does not know its size, such as a serial console, for one without room.

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

/// The terminal while it is ours; what was there before comes back when this is dropped.
pub(super) struct Screen(());

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        // From here on the mode is undone whatever fails.
        let screen = Self(());
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// Shows as much of the lines as there is room for.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let (columns, rows) = match terminal::size()? {
            // It does not know.
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

    /// Waits that long; `true` at once if the user wants to end this.
    pub(super) fn is_quit_within(&mut self, wait: Duration) -> io::Result<bool> {
        let end = Instant::now() + wait;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if !event::poll(left)? {
                return Ok(false);
            }
            if let Event::Key(key) = event::read()? {
                let is_control_c =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(true);
                }
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If this fails, the terminal is gone.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
