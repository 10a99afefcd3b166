//! Reads taxonomy files.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Group, Rule, Taxonomy, TaxonomyError};
use crate::mix::dimension::{DependsOn, Dimension};
use crate::mix::pattern::Pattern;

/// Most groups: each of them is matched against every form of instruction, of which a profile has some thousand. Three thousand took
/// 12 s of one report.
const MOST_GROUPS: usize = 256;

impl Taxonomy {
    /// Parses a taxonomy file.
    pub fn parse(text: &str) -> Result<Self, TaxonomyError> {
        let reader = Reader { text };
        let root = DeTable::parse(text).map_err(|error| {
            let why = error.message().to_owned();
            reader.error(&error.span().unwrap_or_default(), why)
        })?;
        let span = root.span();
        let table = root.get_ref();
        reader.only(table, &["name", "description", "group"])?;
        let name = reader.name(table, &span)?;
        if Dimension::named(&name).is_some() {
            let why = format!("`{name}` is the name of a dimension: choose another");
            return Err(reader.error(&span, why));
        }
        let description = match table.get("description") {
            Some(value) => reader.string(value)?,
            None => String::new(),
        };
        let groups = table
            .get("group")
            .ok_or_else(|| reader.error(&span, "no [[group]]".to_owned()))?;
        let groups = reader.array(groups)?;
        if let Some(beyond) = groups.get(MOST_GROUPS) {
            let why = format!("more than {MOST_GROUPS} groups");
            return Err(reader.error(&beyond.span(), why));
        }
        let groups: Vec<Group> = groups
            .iter()
            .map(|group| reader.group(group))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name,
            description,
            groups,
        })
    }
}

/// Reads the values of a file, and reports the lines of wrong ones.
struct Reader<'a> {
    text: &'a str,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl Reader<'_> {
    fn error(&self, span: &Range<usize>, why: String) -> TaxonomyError {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        TaxonomyError {
            line: before.matches('\n').count() + 1,
            why,
        }
    }

    /// Refuses keys that a table does not have.
    fn only(&self, table: &DeTable<'_>, known: &[&str]) -> Result<(), TaxonomyError> {
        let unknown = table.keys().find(|key| !known.contains(&key.get_ref().as_ref()));
        unknown.map_or(Ok(()), |key| {
            let why = format!(
                "unknown key `{}`; expected one of {}",
                key.get_ref(),
                known.join(", ")
            );
            Err(self.error(&key.span(), why))
        })
    }

    fn string(&self, value: &Value<'_>) -> Result<String, TaxonomyError> {
        let text = value.get_ref().as_str().map(str::to_owned);
        text.ok_or_else(|| {
            let found = value.get_ref().type_str();
            self.error(&value.span(), format!("expected a string, found {found}"))
        })
    }

    fn array<'v, 'i>(&self, value: &'v Value<'i>) -> Result<&'v [Value<'i>], TaxonomyError> {
        let array = value.get_ref().as_array();
        array.map(|array| array.as_ref()).ok_or_else(|| {
            let found = value.get_ref().type_str();
            self.error(&value.span(), format!("expected an array, found {found}"))
        })
    }

    fn table<'v, 'i>(&self, value: &'v Value<'i>) -> Result<&'v DeTable<'i>, TaxonomyError> {
        value.get_ref().as_table().ok_or_else(|| {
            let found = value.get_ref().type_str();
            self.error(&value.span(), format!("expected a table, found {found}"))
        })
    }

    /// The `name` of a table.
    fn name(&self, table: &DeTable<'_>, span: &Range<usize>) -> Result<String, TaxonomyError> {
        let name = table
            .get("name")
            .map(|name| Ok((self.string(name)?, name.span())));
        match name.transpose()? {
            Some((name, _)) if !name.is_empty() && !name.contains(['=', '!', '<', '>', ',', '+']) => Ok(name),
            Some((name, span)) => {
                let why = format!("`{name}` cannot be a name: it is empty or has one of = ! < > , +");
                Err(self.error(&span, why))
            }
            None => Err(self.error(span, "no `name`".to_owned())),
        }
    }

    fn group(&self, value: &Value<'_>) -> Result<Group, TaxonomyError> {
        let table = self.table(value)?;
        self.only(table, &["name", "match"])?;
        let name = self.name(table, &value.span())?;
        let rules = table
            .get("match")
            .ok_or_else(|| self.error(&value.span(), format!("group `{name}` has no `match`")))?;
        let rules = self.array(rules)?.iter().map(|rule| self.rule(rule));
        Ok(Group {
            name,
            rules: rules.collect::<Result<_, _>>()?,
        })
    }

    fn rule(&self, value: &Value<'_>) -> Result<Rule, TaxonomyError> {
        let table = self.table(value)?;
        if table.is_empty() {
            return Err(self.error(&value.span(), "a rule needs a dimension".to_owned()));
        }
        let condition = |(key, value): (&Spanned<_>, &Value<'_>)| {
            let dimension = self.dimension(key)?;
            let patterns = match value.get_ref() {
                DeValue::Array(patterns) => patterns.iter().map(|it| self.pattern(it)).collect(),
                _ => self.pattern(value).map(|pattern| vec![pattern]),
            };
            Ok((dimension, patterns?))
        };
        Ok(Rule(table.iter().map(condition).collect::<Result<_, _>>()?))
    }

    fn dimension(&self, key: &Spanned<std::borrow::Cow<'_, str>>) -> Result<Dimension, TaxonomyError> {
        let of_form = |dimension: &Dimension| dimension.depends_on() == DependsOn::Form;
        let found = Dimension::named(key.get_ref()).filter(of_form);
        found.ok_or_else(|| {
            let known = Dimension::ALL
                .iter()
                .copied()
                .filter(of_form)
                .map(Dimension::name);
            let known: Vec<&str> = known.collect();
            let why = format!(
                "unknown dimension `{}`; expected one of {}",
                key.get_ref(),
                known.join(", ")
            );
            self.error(&key.span(), why)
        })
    }

    fn pattern(&self, value: &Value<'_>) -> Result<Pattern, TaxonomyError> {
        let text = self.string(value)?;
        Pattern::new(&text).map_err(|error| self.error(&value.span(), error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_bounded() {
        let text = |n: usize| {
            let group = |n| format!("[[group]]\nname = \"g{n}\"\nmatch = [{{ mnemonic = \"*\" }}]\n");
            "name = \"many\"\n".to_owned() + &(0..n).map(group).collect::<String>()
        };
        assert_eq!(
            Taxonomy::parse(&text(MOST_GROUPS)).unwrap().groups.len(),
            MOST_GROUPS
        );
        let refused = Taxonomy::parse(&text(MOST_GROUPS + 1)).unwrap_err();
        assert_eq!(refused.why, "more than 256 groups");
    }

    #[test]
    fn errors_name_their_line() {
        let cases = [
            ("", "line 1: no `name`"),
            ("name = 'x'", "line 1: no [[group]]"),
            (
                "name = 'lock'\ngroup = []",
                "line 1: `lock` is the name of a dimension: choose another",
            ),
            (
                "name = 'x'\ncolour = 1",
                "line 2: unknown key `colour`; expected one of name, description, group",
            ),
            ("name = 'x'\n\n[[group]]\nmatch = []", "line 3: no `name`"),
            (
                "name = 'x'\n[[group]]\nname = 'a'",
                "line 2: group `a` has no `match`",
            ),
            (
                "name = 'x'\n[[group]]\nname = 'a'\nmatch = [\n{ lock = 1 }]",
                "line 5: expected a string, found integer",
            ),
            (
                "name = 'x'\n[[group]]\nname = 'a'\nmatch = [{}]",
                "line 4: a rule needs a dimension",
            ),
            (
                "name = 'x'\n[[group]]\nname = 'a,b'\nmatch = []",
                "line 3: `a,b` cannot be a name",
            ),
        ];
        for (text, expected) in cases {
            let error = Taxonomy::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let function = "name = 'x'\n[[group]]\nname = 'a'\nmatch = [{ function = 'f' }]";
        let error = Taxonomy::parse(function).unwrap_err().to_string();
        assert!(
            error.starts_with("line 4: unknown dimension `function`; expected one of mnemonic"),
            "{error}"
        );
        assert_eq!(Taxonomy::parse("name = 'x'\nb = [").unwrap_err().line, 2);
    }
}
