import sys
from ast import literal_eval

for word in sys.argv[1:]:
    if "=" not in word:
        exec(open(word).read())
        continue
    assert word.startswith("--"), word
    name, text = word[2:].split("=")
    try:
        value = literal_eval(text)
    except (SyntaxError, ValueError):
        value = text
    if name not in globals() or type(value) is not type(globals()[name]):
        raise ValueError(f"no setting {name} of this kind")
    globals()[name] = value
