//! Decides by the words of a name if it suggests a secret: `hf_token` does, but `num_tokens`, `key_dim` and `keyboard` do not.

/// Words that make a name secret, unless a later word says otherwise (`password_length`).
const SECRET: &str = "\
    password passwd passphrase passcode secret secrets credential credentials authorization auth apikey authkey \
    accesskey secretkey privatekey authtoken accesstoken apitoken jwt bearer";

/// Words that may follow a secret word without making the name harmless.
const OF_SECRETS: &str = "key keys token value string text id hash json base64 b64 data access secret";

/// Words in front of `token` that make it a token of a language.
const OF_LANGUAGE: &str = "\
    pad padding eos bos eot unk unknown mask cls class sep separator special image video audio patch stop start \
    end begin num n per max min new next prev previous first last extra register distill distillation dist prompt \
    each of context sub word fake tool think decoder encoder forced suppress begin target source lang language by \
    additional ignore blank query output input";

/// Words in front of `key` that make it the key of a table, a sort or a column.
const OF_TABLES: &str = "\
    sort primary foreign cache dict state metric metrics monitor index group partition config data dataset image \
    label text target input output column map mapping lookup hot join registry name public query num n loss val \
    train test eval optimizer model batch sample attention attn feature reward prompt response id hash order per \
    head random rng prng field json video audio caption question answer module weight param parameter layer best \
    early host known log by";

/// First words of switches: `--use-auth-token` has no value.
const OF_SWITCHES: &str = "use no enable disable with without skip require is has allow";

/// Returns true if a name suggests that its value is a secret.
pub(super) fn speaks_of_a_secret(name: &str) -> bool {
    let words = words(name);
    let Some((last, before)) = words.split_last() else { return false };
    let previous = before.last().map(String::as_str).unwrap_or_default();
    match last.as_str() {
        "token" => !has_word(OF_LANGUAGE, previous),
        "key" => !has_word(OF_TABLES, previous),
        // `MYSQL_PWD` and `github_pat` are secrets; `PWD` alone is a folder.
        "pwd" | "pat" | "cookie" => !before.is_empty(),
        "id" if previous == "key" => before.len() > 1 && before[before.len() - 2] == "access",
        _ => words.iter().rposition(|word| is_secret(word)).is_some_and(|at| {
            words[at + 1..].iter().all(|word| has_word(OF_SECRETS, word) || word.bytes().all(|b| b.is_ascii_digit()))
        }),
    }
}

fn has_word(words: &str, word: &str) -> bool {
    words.split(' ').any(|known| known == word)
}

/// Returns true if a name is a switch, which takes no value after a space.
pub(super) fn is_switch(name: &str) -> bool {
    words(name).first().is_some_and(|first| has_word(OF_SWITCHES, first))
}

/// Returns true if a word means a secret, or ends with the name of a secret, as `PGPASSWORD` does.
fn is_secret(word: &str) -> bool {
    has_word(SECRET, word) || ["password", "passwd", "apikey"].iter().any(|end| word.ends_with(end))
}

/// Splits a name into lower-case words: `WANDB_API_KEY`, `hf-token`, `apiKey`, `HFToken`. A trailing number is dropped.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let chars: Vec<char> = name.trim_end_matches(|c: char| c.is_ascii_digit() || "_-.".contains(c)).chars().collect();
    let mut word = String::new();
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| chars.get(before));
        let is_hump = c.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || (before.is_uppercase() && chars.get(at + 1).is_some_and(|after| after.is_lowercase()))
            });
        if (is_hump || !c.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: &str = "key token secret password passwd credential credentials auth api_key apiKey APIKey apikey API-KEY \
        WANDB_API_KEY HF_TOKEN hf-token hf_token hfToken HUGGING_FACE_HUB_TOKEN AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID \
        aws.secret OPENAI_API_KEY COMET_API_KEY NEPTUNE_API_TOKEN CLEARML_API_SECRET_KEY client_secret clientSecret \
        secret_key SECRET_KEY secret-id PGPASSWORD MYSQL_PWD db_password DB_PASSWORD1 password2 dbPassword userPassword \
        basic_auth HTTP_AUTH authorization auth_token authToken access_token accessToken refresh_token private_key \
        ssh-key encryption_key license_key MY_KEY wandb_key github_pat user_credentials credentials_json passphrase jwt";
    const OTHERS: &str = "tokenizer tokenizer_name max_tokens max-tokens num_tokens tokens tokens_per_step tokens_per_second \
        key_dim keyboard keys monkey hockey_key_size author authority authors pad_token eos_token bos_token mask_token \
        num_token token_dim token_id pad_token_id max_new_tokens sort_key primary_key cache_key state_key monitor_key \
        metric_key public_key image_key label_key key_padding_mask num_key_value_heads n_kv password_length secretary \
        secret_dim PWD OLDPWD path cookie pat KeyError authenticate batch_size lr passes pass keyword keywords donkey";

    #[test]
    fn words_decide() {
        for name in SECRETS.split_whitespace() {
            assert!(speaks_of_a_secret(name), "{name}");
        }
        for name in OTHERS.split_whitespace() {
            assert!(!speaks_of_a_secret(name), "{name}");
        }
    }

    #[test]
    fn switches_stand_alone() {
        assert!(is_switch("use_auth_token") && is_switch("no-auth"));
        assert!(!is_switch("hf_token") && !is_switch("user_token"));
    }
}
