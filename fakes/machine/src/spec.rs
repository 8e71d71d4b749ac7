//! Which GPUs a simulated machine is made with, as text: `a100-80gb:8,t4:2`.

use std::str::FromStr;

use crate::models;

/// GPUs of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuSpec {
    /// The catalogue's name of the model, in lower case.
    pub model: String,
    /// How many, 1 to 64.
    pub count: u32,
}

/// A text that does not name GPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "simulated GPUs `{text}`: {problem}; write MODEL:COUNT, such as a100-80gb:8, joined by commas"
)]
pub struct SpecError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

impl GpuSpec {
    /// Most GPUs of one machine.
    pub const GPUS_MAX: u32 = 64;

    /// Reads specs that commas join.
    ///
    /// # Errors
    /// The first spec that cannot be read, or more than [`GpuSpec::GPUS_MAX`] GPUs in all.
    pub fn list(text: &str) -> Result<Vec<Self>, SpecError> {
        let specs: Vec<Self> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let count: u32 = specs.iter().map(|spec| spec.count).sum();
        if count > Self::GPUS_MAX {
            let problem = format!("{count} GPUs are more than {}", Self::GPUS_MAX);
            return Err(SpecError { text: text.to_string(), problem });
        }
        Ok(specs)
    }
}

impl FromStr for GpuSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let refuse = |problem: String| SpecError { text: text.to_string(), problem };
        let (model, count) = text.trim().split_once(':').unwrap_or((text.trim(), "1"));
        let count = count.parse().map_err(|_| refuse(format!("`{count}` is not a count")))?;
        if count == 0 || count > Self::GPUS_MAX {
            return Err(refuse(format!("the count must be 1 to {}", Self::GPUS_MAX)));
        }
        let model = model.to_ascii_lowercase();
        if models::facts(&model).is_none() {
            let known: Vec<&str> = models::names().collect();
            return Err(refuse(format!("no model `{model}`; known are {}", known.join(", "))));
        }
        Ok(Self { model, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_specs_or_say_what_is_wrong() {
        let a100 = GpuSpec { model: "a100-80gb".into(), count: 8 };
        let t4 = GpuSpec { model: "t4".into(), count: 1 };
        assert_eq!(GpuSpec::list("A100-80GB:8,t4"), Ok(vec![a100, t4]));
        for (text, part) in [
            ("a100-80gb:0", "1 to 64"),
            ("t4:x", "not a count"),
            ("z9:1", "l40s"),
            ("t4:40,a30:25", "65 GPUs"),
        ] {
            let said = GpuSpec::list(text).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
    }
}
