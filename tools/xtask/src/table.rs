// SPDX-License-Identifier: GPL-2.0
//! Tables that several scripts fill: lines of a script's output in the form `# table | NAME | LINE
//! | COLUMN | CELL`.

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    table: String,
    line: String,
    column: String,
    text: String,
}

/// All cells so far, in the order of their lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables(Vec<Cell>);

impl Tables {
    /// Parses one line of output; a later cell replaces an earlier one at the same position.
    pub(crate) fn take(&mut self, line: &str) {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["# table", table, line, column, text] = parts[..] {
            self.set(Cell {
                table: table.to_owned(),
                line: line.to_owned(),
                column: column.to_owned(),
                text: text.to_owned(),
            });
        }
    }

    /// Adds the cells of another run.
    pub(crate) fn add(&mut self, other: Self) {
        other.0.into_iter().for_each(|cell| self.set(cell));
    }

    fn set(&mut self, cell: Cell) {
        let place = |other: &&mut Cell| {
            other.table == cell.table && other.line == cell.line && other.column == cell.column
        };
        match self.0.iter_mut().find(place) {
            Some(old) => old.text = cell.text,
            None => self.0.push(cell),
        }
    }

    /// Returns the tables as text, empty if there are none.
    pub(crate) fn show(&self) -> String {
        let names = unique(self.0.iter().map(|cell| &cell.table));
        names.iter().map(|name| self.show_one(name)).collect()
    }

    fn show_one(&self, table: &str) -> String {
        let cells = || self.0.iter().filter(|cell| cell.table == table);
        let lines = unique(cells().map(|cell| &cell.line));
        let columns = unique(cells().map(|cell| &cell.column));
        let text = |line: &str, column: &str| {
            cells()
                .find(|cell| cell.line == line && cell.column == column)
                .map_or("not run", |cell| &cell.text)
        };
        let width = |texts: &mut dyn Iterator<Item = &str>| {
            texts.map(|t| t.chars().count()).max().unwrap_or(0)
        };
        let first = width(&mut lines.iter().copied().chain([table]));
        let widths: Vec<usize> = columns
            .iter()
            .map(|c| width(&mut lines.iter().map(|l| text(l, c)).chain([*c])))
            .collect();

        let row = |head: &str, cells: &mut dyn Iterator<Item = &str>| {
            let mut row = format!("| {head:first$} |");
            for (cell, width) in cells.zip(&widths) {
                row.push_str(&format!(" {cell:width$} |"));
            }
            row + "\n"
        };
        let mut shown = row(table, &mut columns.iter().copied());
        let rule = "-".repeat(widths.iter().copied().max().unwrap_or(0));
        let rules = widths.iter().map(|w| &rule[..*w]);
        shown.push_str(&row(&"-".repeat(first), &mut rules.into_iter()));
        for line in lines {
            shown.push_str(&row(line, &mut columns.iter().map(|c| text(line, c))));
        }
        shown
    }
}

/// Returns each text once, in the order of first appearance.
fn unique<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts {
        if !seen.contains(&text.as_str()) {
            seen.push(text);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_fill_one_table() {
        let (mut all, mut other) = (Tables::default(), Tables::default());
        for line in [
            "# table | peer | reuse | client | not run",
            "# table | peer | first | client | not run",
            "# table | peer | first | client | passed",
            "ok 1 # table | no",
        ] {
            all.take(line);
        }
        other.take("# table | peer | first | server | failed");
        all.add(other);
        assert_eq!(
            all.show(),
            "| peer  | client  | server  |\n\
             | ----- | ------- | ------- |\n\
             | reuse | not run | not run |\n\
             | first | passed  | failed  |\n"
        );
    }

    #[test]
    fn without_cells_there_is_nothing_to_show() {
        assert_eq!(Tables::default().show(), "");
    }
}
