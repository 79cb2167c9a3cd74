//! The fields of a line of CSV, and the names of the columns.

use csv_core::{ReadRecordResult, Reader};

/// The fields of one line. Its buffers serve line after line.
pub(super) struct Fields {
    reader: Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

impl Fields {
    /// No fields yet.
    pub fn new() -> Self {
        Self { reader: Reader::new(), text: Vec::new(), ends: Vec::new(), count: 0 }
    }

    /// Splits a line, and takes the quotes off. A line is a record: no field goes over several lines.
    pub fn split(&mut self, line: &str) {
        // A field takes at least its comma, and no field grows when its quotes go.
        self.text.resize(self.text.len().max(line.len() + 1), 0);
        self.ends.resize(self.ends.len().max(line.bytes().filter(|&byte| byte == b',').count() + 2), 0);
        self.reader.reset();
        let (mut taken, mut written, mut ended) = (0, 0, 0);
        loop {
            let (result, read, wrote, found) =
                self.reader.read_record(&line.as_bytes()[taken..], &mut self.text[written..], &mut self.ends[ended..]);
            (taken, written, ended) = (taken + read, written + wrote, ended + found);
            // An empty rest says that the line is over.
            if !matches!(result, ReadRecordResult::InputEmpty) {
                break;
            }
        }
        self.count = ended;
    }

    fn get(&self, place: usize) -> Option<&str> {
        let end = *self.ends[..self.count].get(place)?;
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        // The line was text, and is cut at commas and quotes only.
        std::str::from_utf8(self.text.get(start..end)?).ok().map(str::trim)
    }

    /// The text in a column.
    pub fn text(&self, place: usize, name: &str) -> Result<&str, String> {
        self.get(place).ok_or_else(|| {
            format!("{name}: is missing; the line has {} fields, and this is column {}", self.count, place + 1)
        })
    }

    /// The whole number in a column.
    pub fn number(&self, place: usize, name: &str) -> Result<u64, String> {
        let text = self.text(place, name)?;
        let is_whole = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse()
            .ok()
            .filter(|_| is_whole)
            .ok_or_else(|| format!("{name}: {text:?} is not a whole number from 0 on"))
    }

    /// The fields as names of columns.
    pub fn header(&self) -> Header<'_> {
        Header { names: (0..self.count).map(|place| self.get(place).unwrap_or_default()).collect() }
    }
}

/// The names of the columns.
pub(super) struct Header<'a> {
    names: Vec<&'a str>,
}

impl Header<'_> {
    /// Where a column is, if there is one of this name.
    pub fn find(&self, name: &str) -> Result<Option<usize>, String> {
        let mut found = self.names.iter().enumerate().filter(|(_, column)| **column == name).map(|(place, _)| place);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("{name}: there are two columns of this name")),
            (place, None) => Ok(place),
        }
    }

    /// Where a column is that has to be there.
    pub fn required(&self, name: &str) -> Result<usize, String> {
        self.find(name)?.ok_or_else(|| {
            let shown: String = self.names.join(", ").chars().take(SHOWN_CHARS).collect();
            format!("there is no column {name:?}; the first line has to name the columns, and has: {shown}")
        })
    }
}

/// How much of a header a message shows.
const SHOWN_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<String> {
        let mut fields = Fields::new();
        fields.split("before,it,there,was,a,longer,line");
        fields.split(line);
        (0..fields.count).map(|place| fields.get(place).unwrap().to_owned()).collect()
    }

    #[test]
    fn a_line_is_split_at_its_commas() {
        assert_eq!(split("a,b c,3"), ["a", "b c", "3"]);
        assert_eq!(
            split(r#""2023-11-16 18:15:46","a,b","say ""x""",é"#),
            ["2023-11-16 18:15:46", "a,b", r#"say "x""#, "é"]
        );
        assert_eq!(split(",,"), ["", "", ""]);
        assert_eq!(split("one"), ["one"]);
        assert_eq!(split("\"never closed, it ends with the line"), ["never closed, it ends with the line"]);
    }

    #[test]
    fn numbers_are_whole_and_their_column_is_named() {
        let mut fields = Fields::new();
        fields.split("12,1.0,-3,,99999999999999999999,+4");
        assert_eq!(fields.number(0, "n"), Ok(12));
        for place in 1..6 {
            assert!(fields.number(place, "n").unwrap_err().starts_with("n: \""), "{place}");
        }
        assert!(fields.number(6, "n").unwrap_err().contains("the line has 6 fields, and this is column 7"));
    }

    #[test]
    fn columns_are_found_by_name() {
        let mut fields = Fields::new();
        fields.split(" a ,b,b");
        let header = fields.header();
        assert_eq!(header.find("a"), Ok(Some(0)));
        assert_eq!(header.find("c"), Ok(None));
        assert!(header.required("b").unwrap_err().contains("two columns"));
        assert!(header.required("c").unwrap_err().contains("has: a, b, b"));
    }
}
