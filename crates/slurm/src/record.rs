//! What `scontrol -o show` prints: `Name=value` words, one record a line. A value may hold blanks and equals
//! signs; a name stands for itself.

use std::collections::BTreeMap;

/// One record, by name of its fields. A name that comes again, as the lines for each node of a job do, is
/// kept in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record(BTreeMap<String, Vec<String>>);

impl Record {
    /// Reads one line.
    pub fn parse(line: &str) -> Self {
        let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut last: Option<String> = None;
        for word in line.split_whitespace() {
            match word.split_once('=').filter(|(name, _)| is_name(name)) {
                Some((name, value)) => {
                    fields.entry(name.to_owned()).or_default().push(value.to_owned());
                    last = Some(name.to_owned());
                }
                None => {
                    let values = last.as_ref().and_then(|name| fields.get_mut(name));
                    if let Some(value) = values.and_then(|values| values.last_mut()) {
                        value.push(' ');
                        value.push_str(word);
                    }
                }
            }
        }
        Self(fields)
    }

    /// Reads all records of an answer.
    pub fn all(text: &str) -> Vec<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(Self::parse).filter(|record| !record.0.is_empty()).collect()
    }

    /// The first value of a field; `None` if it is not there, empty, or one of Slurm's words for nothing.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?.first()?.trim();
        (!matches!(value, "" | "(null)" | "N/A" | "None")).then_some(value)
    }

    /// All values of a field.
    pub fn values(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// A field that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

/// Names begin with a capital letter, as `JobId`, `NtasksPerN:B:S:C` and `Nice`; words of a comment rarely do.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase())
        && text
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || matches!(one, ':' | '_' | '/' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_fields_and_the_rest_belongs_to_the_last() {
        let line = "JobId=7 JobName=a b Reason=None TRES=cpu=1,gres/shard=2 Nodes=n1 CPU_IDs=0 Nodes=n2 \
                    NtasksPerN:B:S:C=0:0:*:* Comment=(null)";
        let record = Record::parse(line);
        assert_eq!(record.number("JobId"), Some(7));
        assert_eq!(record.get("JobName"), Some("a b"));
        assert_eq!(record.get("TRES"), Some("cpu=1,gres/shard=2"));
        assert_eq!(record.values("Nodes"), ["n1", "n2"]);
        assert_eq!((record.get("Reason"), record.get("Comment")), (None, None));
    }
}
