//! Tables for people: columns as wide as what stands in them.

use std::fmt;

/// See the module's text.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these words above the columns.
    pub(super) fn new(names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self { rows: vec![names] }
    }

    /// One row more. What would break the line stands there escaped.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let plain = |cell: String| match cell.chars().any(char::is_control) {
            true => cell.escape_debug().to_string(),
            false => cell,
        };
        self.rows.push(cells.into_iter().map(plain).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_nothing_breaks_a_line() {
        let mut table = Table::new(&["name", "n"]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["l\u{e9}ng\n".to_owned(), "22".to_owned()]);
        assert_eq!(
            table.to_string(),
            "name    n\na       1\nl\u{e9}ng\\n  22\n"
        );
    }
}
