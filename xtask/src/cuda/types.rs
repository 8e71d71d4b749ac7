//! Rust types of the simulated driver, as they are written in its source: size, alignment and where their
//! parts lie. Enough of the language for structs that C knows.

use std::collections::BTreeMap;

/// Size, alignment, and where the parts begin and how large they are, in bytes; parts of parts too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) size: usize,
    pub(super) align: usize,
    pub(super) parts: Vec<(usize, usize)>,
}

/// A struct or union with the names that its remark gives C for it.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) name: String,
    pub(super) c_names: Vec<String>,
}

/// Known types by name: their fields, and whether these lie on top of each other.
#[derive(Debug, Default)]
pub(super) struct Types {
    known: BTreeMap<String, (Vec<String>, bool)>,
    /// Other names of types.
    other_names: BTreeMap<String, String>,
    pub(super) described: Vec<Described>,
}

impl Types {
    /// All `#[repr(C)]` structs and unions of a source file, in its order.
    pub(super) fn read(text: &str) -> Self {
        let mut types = Self::default();
        let mut remark = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let line = line.trim();
            if let Some(words) = line.strip_prefix("///") {
                remark.push_str(words);
                continue;
            }
            let plain = line.trim_start_matches("pub(crate) ");
            let head = plain.strip_prefix("struct ").or_else(|| plain.strip_prefix("union "));
            let Some(head) = head else {
                if !line.starts_with("#[") {
                    remark.clear();
                }
                continue;
            };
            let name: String = head.chars().take_while(|c| c.is_alphanumeric()).collect();
            let fields = match head.split_once('(') {
                Some((_, one)) => vec![one.trim_end_matches(");").to_string()],
                None => fields(&mut lines),
            };
            types.known.insert(name.clone(), (fields, plain.starts_with("union")));
            let quoted = remark.split('`').skip(1).step_by(2);
            let c_names =
                quoted.filter(|word| word.starts_with("CU")).map(str::to_string).collect();
            types.described.push(Described { name, c_names });
            remark.clear();
        }
        types
    }

    /// Takes note of the other names that a source file gives to types, line by line.
    pub(super) fn read_other_names(&mut self, text: &str) {
        let named = text.lines().filter_map(|line| {
            let line = line.trim_start_matches("pub(crate) ").strip_prefix("type ")?;
            line.strip_suffix(';')?.split_once(" = ")
        });
        self.other_names.extend(named.map(|(name, kind)| (name.to_string(), kind.to_string())));
    }

    /// The shape of a type as it is written.
    pub(super) fn shape(&self, kind: &str) -> Result<Shape, String> {
        let scalar = |size: usize| Shape { size, align: size, parts: Vec::new() };
        let kind = kind.trim().trim_start_matches("pub(crate) ");
        if kind.starts_with('*') || kind.starts_with("Option<") {
            return Ok(scalar(8));
        }
        if let Some(list) = kind.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (of, count) = list.split_once(';').ok_or_else(|| format!("`{kind}`: no list"))?;
            let (one, count) = (self.shape(of)?, count.trim().parse::<usize>());
            let count = count.map_err(|_| format!("`{kind}`: no count"))?;
            let parts = (0..count).map(|at| (at * one.size, one.size)).collect();
            return Ok(Shape { size: one.size * count, align: one.align, parts });
        }
        let known = match kind {
            "u8" | "i8" | "c_char" => scalar(1),
            "u16" | "i16" => scalar(2),
            "u32" | "i32" | "c_int" | "c_uint" | "f32" => scalar(4),
            "u64" | "i64" | "usize" | "f64" | "Handle" => scalar(8),
            named => {
                if let Some(kind) = self.other_names.get(named) {
                    return self.shape(kind);
                }
                let found = self.known.get(named);
                let (fields, union) =
                    found.ok_or_else(|| format!("the type `{named}` is not known here"))?;
                return self.lay_out(fields, *union);
            }
        };
        Ok(known)
    }

    fn lay_out(&self, fields: &[String], union: bool) -> Result<Shape, String> {
        let mut whole = Shape { align: 1, ..Shape::default() };
        for field in fields {
            let kind = field.split_once(": ").map_or(field.as_str(), |(_, kind)| kind);
            let part = self.shape(kind)?;
            let at = if union { 0 } else { whole.size.next_multiple_of(part.align) };
            whole.parts.push((at, part.size));
            whole.parts.extend(part.parts.iter().map(|(inner, size)| (at + inner, *size)));
            whole.size = whole.size.max(at + part.size);
            whole.align = whole.align.max(part.align);
        }
        whole.size = whole.size.next_multiple_of(whole.align);
        Ok(whole)
    }
}

/// The fields up to the closing brace.
fn fields<'text>(lines: &mut impl Iterator<Item = &'text str>) -> Vec<String> {
    let inside = lines.map(str::trim).take_while(|line| *line != "}");
    let coded = inside.filter(|line| !line.starts_with("//") && !line.starts_with("#["));
    coded.map(|line| line.trim_end_matches(',').to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_are_laid_out_as_c_does() {
        let text = "/// `CUa` and `CUb`.\n#[derive(Clone)]\n#[repr(C)]\npub(crate) struct A {\n\
                    pub(crate) kind: c_int,\n    /// Why.\n    pub(crate) at: u64,\n    pub(crate) tail: [u32; 3],\n}\n\
                    /// One.\npub(crate) struct B(pub(crate) [u8; 64]);\n\
                    pub(crate) union C {\n pub(crate) a: A,\n pub(crate) f: Option<extern \"C\" fn(u8)>,\n}\n";
        let mut types = Types::read(text);
        types.read_other_names("type Call = Option<fn(u8)>;\n");
        assert_eq!(types.shape("Call").unwrap().size, 8);
        let a = types.shape("A").unwrap();
        assert_eq!((a.size, a.align), (32, 8));
        assert_eq!(a.parts, [(0, 4), (8, 8), (16, 12), (16, 4), (20, 4), (24, 4)]);
        assert_eq!(types.described[0].c_names, ["CUa", "CUb"]);
        assert_eq!(types.shape("B").unwrap().size, 64);
        assert_eq!(types.shape("C").unwrap().size, 32);
        assert!(types.shape("D").is_err());
    }
}
