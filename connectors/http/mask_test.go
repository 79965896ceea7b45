package http

import "testing"

func TestH6MaskURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://api.test/v1?page=2&size=10":                    "https://api.test/v1?page=2&size=10",
		"https://ann:pass@api.test/v1":                          "https://***@api.test/v1",
		"https://token@api.test/v1":                             "https://***@api.test/v1",
		"https://api.test/?api_key=x&b=1":                       "https://api.test/?api_key=***&b=1",
		"https://api.test/?apikey=x":                            "https://api.test/?apikey=***",
		"https://api.test/?apiKey=x":                            "https://api.test/?apiKey=***",
		"https://api.test/?key=x":                               "https://api.test/?key=***",
		"https://api.test/?a%70i_key=x":                         "https://api.test/?a%70i_key=***",
		"https://api.test/?access_token=x&token=y;sig=z":        "https://api.test/?access_token=***&token=***&sig=***",
		"https://api.test/?X-Amz-Signature=x&X-Amz-Date=2026":   "https://api.test/?X-Amz-Signature=***&X-Amz-Date=2026",
		"https://api.test/?X-Amz-Credential=x":                  "https://api.test/?X-Amz-Credential=***",
		"https://api.test/?client_secret=x&password=y&passwd=z": "https://api.test/?client_secret=***&password=***&passwd=***",
		"https://api.test/?monkey=1&keyboard=2&author=3":        "https://api.test/?monkey=1&keyboard=2&author=3",
		"https://api.test/?token=":                              "https://api.test/?token=",
		"https://api.test/?token":                               "https://api.test/?token",
		"https://api.test/#access_token=x":                      "https://api.test/",
		"/v1?auth=x":                                            "/v1?auth=***",
		"http://ann:p/ss@api.test/":                             "(unreadable URL)",
		"mailto:ann@api.test":                                   "(unreadable URL)",
		"":                                                      "",
	} {
		if got := MaskURL(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestHeadersThatAreSecrets(t *testing.T) {
	for name, want := range map[string]bool{
		"Authorization": true, "Proxy-Authorization": true, "Cookie": true, "X-Api-Key": true, "X-Auth-Token": true,
		"Ocp-Apim-Subscription-Key": true, "Apikey": true, "X-Signature": true,
		"Accept": false, "Idempotency-Key": false, "User-Agent": false, "X-Request-Id": false, "Content-Type": false, "X-Author": false,
	} {
		if got := isSecretHeader(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
