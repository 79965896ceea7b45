package expr

import (
	"errors"
	"testing"
)

func TestTemplateOfURLEscapesHolesForTheirPlace(t *testing.T) {
	env := &Env{}
	env.Config, _ = NewDoc([]byte(`{"host":"api.example.com:8443","bad":"a/b@c","region":"a/b c?d=é","up":"..","base":"https://x.test/v1?k=v","space":"https://x.test/ y","n":7}`))
	for _, c := range []struct{ text, want, wrong string }{
		{`https://{{ config.host }}/p`, "https://api.example.com:8443/p", ""},
		{`https://{{ config.bad }}/p`, "", CodeHole},
		{`https://api.test/{{ config.region }}/x`, "https://api.test/a%2Fb%20c%3Fd=%C3%A9/x", ""},
		{`https://api.test/x?r={{ config.region }}&n={{ config.n }}`, "https://api.test/x?r=a%2Fb+c%3Fd%3D%C3%A9&n=7", ""},
		{`{{ config.base }}`, "https://x.test/v1?k=v", ""},
		{`{{ config.base }}&x={{ config.region }}`, "https://x.test/v1?k=v&x=a%2Fb+c%3Fd%3D%C3%A9", ""},
		{`{{ config.space }}`, "", CodeHole},
		{`/files/{{ config.up }}/x`, "", CodeHole},
		{`/files/{{ config.none }}`, "", CodeNilHole},
		{`/files/v{{ config.n }}`, "/files/v7", ""},
	} {
		tpl, err := CompileTemplate(c.text, Config)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tpl.AppendURL([]byte("GET "), env)
		var f *Failure
		if errors.As(err, &f); c.wrong != "" && (f == nil || f.Code != c.wrong) || c.wrong == "" && (err != nil || string(got) != "GET "+c.want) {
			t.Errorf("%s: %s, %v; want %s %s", c.text, got, err, c.want, c.wrong)
		}
	}
}

func TestSecretTemplateTakesReplacedTextsAsTheyAre(t *testing.T) {
	text := `Bearer ${TOKEN} {{ config.n }} $5`
	tpl, err := CompileSecretTemplate(text, Config, "here", func(at int) (string, int) {
		if text[at:at+2] == "${" {
			return "{{ 1 + }} ${TOKEN}", len("${TOKEN}")
		}
		return "", 0
	})
	if err != nil {
		t.Fatal(err)
	}
	env := &Env{}
	env.Config, _ = NewDoc([]byte(`{"n":1}`))
	if got, err := tpl.Append(nil, env); err != nil || string(got) != "Bearer {{ 1 + }} ${TOKEN} 1 $5" {
		t.Errorf("%s, %v", got, err)
	}
	env.Config = Doc{}
	_, err = tpl.Append(nil, env)
	var f *Failure
	if !errors.As(err, &f) || f.Ref != "here" || f.Line != 1 || f.Column != 20 || f.Text != " config.n " {
		t.Errorf("%+v", f)
	}
}
