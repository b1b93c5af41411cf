//! Words of a sandbox on the desktop's own surfaces: tray menu and notifications.

/// One line without what would reorder, hide or mark it up there: titles and errors come from prompts, repositories and
/// agents.
pub(crate) fn plain(text: &str) -> String {
    let shown = text.chars().filter_map(|character| match character {
        '<' => Some('‹'),
        '>' => Some('›'),
        _ if character.is_whitespace() => Some(' '),
        _ if character.is_control() || is_hidden(character) => None,
        _ => Some(character),
    });
    shown.collect()
}

/// Marks of direction, joiners and spaces without width, tags.
fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reorders_hides_or_marks_up_does_not_reach_the_desktop() {
        assert_eq!(plain("a\u{202e}b\u{200b}c\n<b>d</b>\u{1b}[2J é 日本"), "abc ‹b›d‹/b›[2J é 日本");
    }
}
