//! Parses an expression into a tree, as far as this module can reason about it.
//!
//! The language and its precedence are the same as in [`Expression`](super::super::Expression). An expression with
//! unsupported parts (filters, joined strings, lists as values) has no tree and is only evaluated.

/// The tree of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tree {
    Whole(i64),
    Real(f64),
    Text(String),
    Bool(bool),
    Name(String),
    Negative(Box<Self>),
    Not(Box<Self>),
    All(Box<Self>, Box<Self>),
    Any(Box<Self>, Box<Self>),
    Arithmetic(Sign, Box<Self>, Box<Self>),
    /// A chain of comparisons, each value with the previous value.
    Compare(Box<Self>, Vec<(Relation, Self)>),
    /// The test that a value is in a list.
    In(Box<Self>, Vec<Self>),
    /// The value if the condition holds, and the value if it does not.
    If(Box<Self>, Box<Self>, Box<Self>),
    Call(String, Vec<Self>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sign {
    Plus,
    Minus,
    Times,
    Divided,
    FloorDivided,
    Modulo,
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The deepest nesting that is parsed: a round number, as a guard against stack overflow.
const DEEPEST: usize = 60;

/// Parses an expression; `None` if it uses an unsupported part of the language.
pub(super) fn read(text: &str) -> Option<Tree> {
    let mut reader = Reader { tokens: tokens(text)?, next: 0, depth: 0 };
    let tree = reader.choice()?;
    (reader.next == reader.tokens.len()).then_some(tree)
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Whole(i64),
    Real(f64),
    Text(String),
    Word(String),
    Sign(&'static str),
}

const SIGNS: &[&str] =
    &["**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "<", ">", "(", ")", "[", "]", ","];

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut rest = text.trim_start();
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (token, length) = if first.is_ascii_digit() {
            number(rest)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            (Token::Word(rest[..length].to_owned()), length)
        } else if matches!(first, '\'' | '"') {
            let inside = rest[1..].find(first)?;
            let content = &rest[1..=inside];
            (Token::Text((!content.contains('\\')).then(|| content.to_owned())?), inside + 2)
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign))?;
            (Token::Sign(sign), sign.len())
        };
        found.push(token);
        rest = rest[length..].trim_start();
    }
    Some(found)
}

/// Parses a plain decimal number; other notations are left to the language itself.
fn number(text: &str) -> Option<(Token, usize)> {
    let length = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_').unwrap_or(text.len());
    let digits = &text[..length];
    let (whole, part) = digits.split_once('.').map_or((digits, None), |(whole, part)| (whole, Some(part)));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(whole) || !part.is_none_or(plain) {
        return None;
    }
    let token = if part.is_some() { Token::Real(digits.parse().ok()?) } else { Token::Whole(digits.parse().ok()?) };
    Some((token, length))
}

struct Reader {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

impl Reader {
    fn take(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.tokens.get(self.next), Some(Token::Sign(next)) if *next == sign);
        self.next += usize::from(is_next);
        is_next
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.tokens.get(self.next), Some(Token::Word(next)) if next == word);
        self.next += usize::from(is_next);
        is_next
    }

    fn choice(&mut self) -> Option<Tree> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let mut tree = self.any()?;
        while self.take_word("if") {
            let condition = self.any()?;
            if !self.take_word("else") {
                return None;
            }
            tree = Tree::If(Box::new(condition), Box::new(tree), Box::new(self.choice()?));
        }
        self.depth -= 1;
        Some(tree)
    }

    fn any(&mut self) -> Option<Tree> {
        let mut tree = self.all()?;
        while self.take_word("or") {
            tree = Tree::Any(Box::new(tree), Box::new(self.all()?));
        }
        Some(tree)
    }

    fn all(&mut self) -> Option<Tree> {
        let mut tree = self.not()?;
        while self.take_word("and") {
            tree = Tree::All(Box::new(tree), Box::new(self.not()?));
        }
        Some(tree)
    }

    fn not(&mut self) -> Option<Tree> {
        let mut times = 0;
        while self.take_word("not") {
            times += 1;
        }
        let tree = self.comparison()?;
        Some((0..times).fold(tree, |tree, _| Tree::Not(Box::new(tree))))
    }

    fn comparison(&mut self) -> Option<Tree> {
        const RELATIONS: &[(&str, Relation)] = &[
            ("==", Relation::Equal),
            ("!=", Relation::Unequal),
            ("<=", Relation::LessOrEqual),
            (">=", Relation::GreaterOrEqual),
            ("<", Relation::Less),
            (">", Relation::Greater),
        ];
        let first = self.sum()?;
        let is_not = self.take_word("not");
        if self.take_word("in") {
            let listed = Tree::In(Box::new(first), self.list()?);
            return Some(if is_not { Tree::Not(Box::new(listed)) } else { listed });
        }
        let mut chain = Vec::new();
        while let Some((_, relation)) = RELATIONS.iter().find(|(sign, _)| self.take(sign)) {
            chain.push((*relation, self.sum()?));
        }
        match (is_not, chain.is_empty()) {
            (true, _) => None,
            (false, true) => Some(first),
            (false, false) => Some(Tree::Compare(Box::new(first), chain)),
        }
    }

    fn list(&mut self) -> Option<Vec<Tree>> {
        self.take("[").then_some(())?;
        self.until("]")
    }

    fn until(&mut self, end: &str) -> Option<Vec<Tree>> {
        let mut items = Vec::new();
        while !self.take(end) {
            if !items.is_empty() && (!self.take(",") || self.take(end)) {
                return None;
            }
            items.push(self.choice()?);
        }
        Some(items)
    }

    fn sum(&mut self) -> Option<Tree> {
        self.left_to_right(&[("+", Sign::Plus), ("-", Sign::Minus)], Self::product)
    }

    fn product(&mut self) -> Option<Tree> {
        const SIGNS: &[(&str, Sign)] =
            &[("*", Sign::Times), ("//", Sign::FloorDivided), ("/", Sign::Divided), ("%", Sign::Modulo)];
        self.left_to_right(SIGNS, Self::power)
    }

    fn power(&mut self) -> Option<Tree> {
        self.left_to_right(&[("**", Sign::Power)], Self::unary)
    }

    fn left_to_right(
        &mut self,
        signs: &[(&'static str, Sign)],
        part: impl Fn(&mut Self) -> Option<Tree>,
    ) -> Option<Tree> {
        let mut tree = part(self)?;
        while let Some((_, sign)) = signs.iter().find(|(sign, _)| self.take(sign)) {
            tree = Tree::Arithmetic(*sign, Box::new(tree), Box::new(part(self)?));
        }
        Some(tree)
    }

    fn unary(&mut self) -> Option<Tree> {
        let mut times = 0;
        while self.take("-") {
            times += 1;
        }
        let tree = self.primary()?;
        Some((0..times).fold(tree, |tree, _| Tree::Negative(Box::new(tree))))
    }

    fn primary(&mut self) -> Option<Tree> {
        const WORDS: &[&str] = &["and", "or", "not", "in", "is", "if", "else", "none", "None"];
        if self.take("(") {
            let tree = self.choice()?;
            return self.take(")").then_some(tree);
        }
        let token = self.tokens.get(self.next)?.clone();
        self.next += 1;
        Some(match token {
            Token::Whole(number) => Tree::Whole(number),
            Token::Real(number) => Tree::Real(number),
            Token::Text(text) => Tree::Text(text),
            Token::Word(word) if matches!(word.as_str(), "true" | "True") => Tree::Bool(true),
            Token::Word(word) if matches!(word.as_str(), "false" | "False") => Tree::Bool(false),
            Token::Word(word) if WORDS.contains(&word.as_str()) => return None,
            Token::Word(word) if self.take("(") => Tree::Call(word, self.until(")")?),
            Token::Word(word) => Tree::Name(word),
            Token::Sign(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        fn show(tree: &Tree) -> String {
            match tree {
                Tree::Arithmetic(sign, a, b) => format!("({} {sign:?} {})", show(a), show(b)),
                Tree::All(a, b) => format!("({} and {})", show(a), show(b)),
                Tree::Any(a, b) => format!("({} or {})", show(a), show(b)),
                Tree::Not(a) => format!("not {}", show(a)),
                Tree::Negative(a) => format!("-{}", show(a)),
                Tree::Name(name) => name.clone(),
                Tree::Whole(number) => number.to_string(),
                other => format!("{other:?}"),
            }
        }
        read(text).map_or_else(|| "none".to_owned(), |tree| show(&tree))
    }

    #[test]
    fn what_binds_tighter_comes_first() {
        assert_eq!(shown("a + b * c - d"), "((a Plus (b Times c)) Minus d)");
        assert_eq!(shown("-a ** 2 // 3"), "((-a Power 2) FloorDivided 3)");
        assert_eq!(shown("a or b and not c"), "(a or (b and not c))");
        assert_eq!(shown("a % (b * c)"), "(a Modulo (b Times c))");
    }

    #[test]
    fn more_of_the_language_gives_no_tree() {
        for text in
            ["a | int", "a ~ b", "a.b", "a[0]", "a is odd", "1_000", "1e3", "'a\\'b'", "a if b", "(1, 2)", "a in b", ""]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert!(read(&format!("{}a{}", "(".repeat(500), ")".repeat(500))).is_none());
    }
}
