//! A short way to read the Mooncake rows that nearly all are: an object of whole numbers and one list of them.
//!
//! Whatever is not of this shape is left to the JSON library, which also says what is wrong with it. So nothing here
//! decides whether a row is right.

use dynosim_schemas::trace::MooncakeRow;

/// Digits that any 64-bit number can hold.
const MOST_DIGITS: usize = 19;
/// Digits that a float holds exactly.
const EXACT_DIGITS: usize = 15;

/// Reads a row that has the fields `timestamp`, `input_length`, `output_length` and `hash_ids`, the first two of which may
/// be missing, and nothing else. `ids` is an empty list whose memory is used.
pub(super) fn read(line: &str, ids: Vec<u64>) -> Option<MooncakeRow> {
    let mut rest = Rest(line.as_bytes());
    let mut row = MooncakeRow { hash_ids: ids, ..MooncakeRow::default() };
    let (mut has_output, mut has_ids) = (false, false);
    rest.token(b'{')?;
    loop {
        rest.token(b'"')?;
        if rest.text(b"hash_ids\"") && !has_ids {
            rest.token(b':')?;
            rest.list(&mut row.hash_ids)?;
            has_ids = true;
        } else if rest.text(b"output_length\"") && !has_output {
            rest.token(b':')?;
            row.output_length = rest.whole()?;
            has_output = true;
        } else if rest.text(b"input_length\"") && row.input_length.is_none() {
            rest.token(b':')?;
            row.input_length = Some(rest.whole()?);
        } else if rest.text(b"timestamp\"") && row.timestamp.is_none() {
            rest.token(b':')?;
            row.timestamp = Some(rest.decimal()?);
        } else {
            return None;
        }
        if rest.token(b',').is_none() {
            break;
        }
    }
    rest.token(b'}')?;
    (rest.is_empty() && has_output && has_ids).then_some(row)
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn skip_blanks(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    fn is_empty(&mut self) -> bool {
        self.skip_blanks();
        self.0.is_empty()
    }

    /// Takes a character, and the blanks before it.
    fn token(&mut self, wanted: u8) -> Option<()> {
        self.skip_blanks();
        let (&first, rest) = self.0.split_first()?;
        (first == wanted).then(|| self.0 = rest)
    }

    /// Takes a text if it is there.
    fn text(&mut self, wanted: &[u8]) -> bool {
        let found = self.0.strip_prefix(wanted);
        found.inspect(|rest| self.0 = rest).is_some()
    }

    /// Takes digits: what they are worth, and how many they are.
    fn digits(&mut self) -> (u64, usize) {
        let (mut value, mut count) = (0_u64, 0);
        while let [digit @ b'0'..=b'9', rest @ ..] = self.0 {
            if count == MOST_DIGITS {
                return (0, 0);
            }
            value = value * 10 + u64::from(digit - b'0');
            count += 1;
            self.0 = rest;
        }
        (value, count)
    }

    /// Takes a whole number as JSON writes it: no sign, no zero in front of it.
    fn whole(&mut self) -> Option<u64> {
        self.skip_blanks();
        let starts_with_zero = self.0.first() == Some(&b'0');
        let (value, count) = self.digits();
        (count > 0 && !(starts_with_zero && count > 1) && !matches!(self.0.first(), Some(b'.' | b'e' | b'E')))
            .then_some(value)
    }

    /// Takes a number with or without a fraction, short enough that the float next to it is found by one division.
    fn decimal(&mut self) -> Option<f64> {
        self.skip_blanks();
        let starts_with_zero = self.0.first() == Some(&b'0');
        let (whole, count) = self.digits();
        if count == 0 || count > EXACT_DIGITS || (starts_with_zero && count > 1) {
            return None;
        }
        let mut value = whole as f64;
        if self.text(b".") {
            let (fraction, places) = self.digits();
            if places == 0 || count + places > EXACT_DIGITS {
                return None;
            }
            let scale = 10_u64.pow(places as u32);
            value = (whole * scale + fraction) as f64 / scale as f64;
        }
        (!matches!(self.0.first(), Some(b'.' | b'e' | b'E'))).then_some(value)
    }

    fn list(&mut self, into: &mut Vec<u64>) -> Option<()> {
        self.token(b'[')?;
        if self.token(b']').is_some() {
            return Some(());
        }
        loop {
            into.push(self.whole()?);
            if self.token(b',').is_none() {
                return self.token(b']');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(line: &str) -> Option<MooncakeRow> {
        read(line, Vec::new())
    }

    #[test]
    fn usual_rows_are_read_like_the_library_reads_them() {
        for line in [
            r#"{"timestamp": 300, "input_length": 130, "output_length": 7, "hash_ids": [9001, 9002, 9003]}"#,
            r#"{"timestamp":0.5,"output_length":0,"hash_ids":[0]}"#,
            "{ \"hash_ids\" :\t[ 1 ,2 ] , \"output_length\" : 3 } ",
            r#"{"output_length":1,"hash_ids":[]}"#,
            r#"{"timestamp":123456789012.345,"output_length":1,"hash_ids":[9999999999999999999]}"#,
            r#"{"timestamp":0.1,"output_length":1,"hash_ids":[1]}"#,
            r#"{"timestamp":4314.579,"output_length":1,"hash_ids":[1]}"#,
        ] {
            assert_eq!(quick(line), Some(serde_json::from_str(line).unwrap()), "{line}");
        }
    }

    #[test]
    fn everything_else_is_left_to_the_library() {
        for line in [
            "",
            "{}",
            "[1]",
            r#"{"output_length":1}"#,
            r#"{"hash_ids":[1]}"#,
            r#"{"output_length":1,"hash_ids":[1]"#,
            r#"{"output_length":1,"hash_ids":[1],}"#,
            r#"{"output_length":1,"hash_ids":[1,]}"#,
            r#"{"output_length":1,"hash_ids":[1]} x"#,
            r#"{"output_length":1,"hash_ids":[01]}"#,
            r#"{"output_length":1.0,"hash_ids":[1]}"#,
            r#"{"output_length":1e2,"hash_ids":[1]}"#,
            r#"{"output_length":-1,"hash_ids":[1]}"#,
            r#"{"output_length":1,"output_length":1,"hash_ids":[1]}"#,
            r#"{"output_length":1,"hash_ids":[1],"hash_ids":[1]}"#,
            r#"{"output_length":1,"hash_ids":[18446744073709551615]}"#,
            r#"{"output_length":1,"hash_ids":[99999999999999999999]}"#,
            r#"{"output_length":1,"hash_ids":[1],"timestamp":1e3}"#,
            r#"{"output_length":1,"hash_ids":[1],"timestamp":-1}"#,
            r#"{"output_length":1,"hash_ids":[1],"timestamp":1.}"#,
            r#"{"output_length":1,"hash_ids":[1],"timestamp":1.2.3}"#,
            r#"{"output_length":1,"hash_ids":[1],"timestamp":null}"#,
            r#"{"output_length":1,"hash_ids":[1],"timestamp":0.12345678901234567}"#,
            r#"{"output_length":1,"hash_ids":[1],"session_id":"a"}"#,
            r#"{"output_tokens":1,"hash_ids":[1]}"#,
        ] {
            assert_eq!(quick(line), None, "{line}");
        }
    }

    #[test]
    fn whatever_is_read_is_what_the_library_reads() {
        let row = r#"{"timestamp": 1300.25, "input_length": 130, "output_length": 7, "hash_ids": [9001, 12, 0]}"#;
        let mut read = 0;
        // Every way to change one character, and to take some away.
        for at in 0..row.len() {
            for byte in b" ,:.0159-+eE\"{}[]x" {
                let changed = format!("{}{}{}", &row[..at], char::from(*byte), &row[at + 1..]);
                let without = format!("{}{}", &row[..at], &row[(at + usize::from(*byte) % 7).min(row.len())..]);
                for line in [changed, without] {
                    if let Some(quickly) = quick(&line) {
                        assert_eq!(Some(quickly), serde_json::from_str(&line).ok(), "{line}");
                        read += 1;
                    }
                }
            }
        }
        assert!(read > 100, "only {read} rows were read");
    }
}
